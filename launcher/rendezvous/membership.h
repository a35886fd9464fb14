#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/token.h"
#include "common/event_loop.h"
#include "common/status.h"

// Who takes part in a job, and in which generation: what launcher/job builds upon.
//
// A job has replicas (launchers, one a machine or pod). Replica 0 leads: it serves the store of the job's
// ranks, and on the same port the other launchers keep one connection each to it. A generation is one start
// of all ranks of all replicas; it starts when every replica is ready, and ends for all when a rank fails or
// a launcher is lost. An elastic job goes on without a replica that stays away, and takes it in again when it
// returns (coordinator.h). With one replica the same code runs without any peer and listens on 127.0.0.1
// only.
//
//   membership.h    what the job's code sees          coordinator.h   the decisions, pure, only at replica 0
//   leader, follower  the two implementations         store_server.h  the port: strangers, ranks, launchers
//   channel.h       one connection on the event loop  store_table.h   keys, values and who waits for them
namespace lockstep::rendezvous {

// One replica's part in a generation.
struct Member {
  int replica = 0;
  std::string host = {};  // under which the others reach it; 127.0.0.1 if it is alone
  int processes = 0;
};

// What every replica needs to start its ranks.
struct GenerationStart {
  int64_t generation = 0;             // 0 at first; always more than any that a replica has seen
  std::vector<Member> replicas = {};  // those that take part, in order: all, or fewer in an elastic job
  int rank_offset = 0;                // of this replica's first process; its ranks are contiguous
  int world_size = 0;
  std::string master_address = {};  // the same on all replicas
  int master_port = 0;              // free at replica 0; see PortReservation
  std::string store_address = {};   // HOST:PORT, as this replica reaches it
  std::string store_id = {};        // hexadecimal digits
  // How often this replica was started again within the generation, while the others went on.
  int incarnation = 0;
};

// One process is to be started again, not before `delay` has passed.
struct ProcessRestart {
  int process = 0;  // its index in its replica
  int incarnation = 0;
  std::chrono::milliseconds delay{0};
};

enum class StopCause {
  kFailure,    // a rank failed somewhere: restartGracePeriodSeconds
  kPeerLost,   // a launcher is gone: restartGracePeriodSeconds
  kTerminate,  // the job is to end: terminationGracePeriodSeconds
  // The job goes on with more replicas, or one leaves that was asked to stop. To the ranks as kTerminate, so
  // that they can save what they did; no failure.
  kResize,
  // The ranks that the job is about have ended well (Options::ends_job): to those that still run as
  // kTerminate. They count as done, however they end.
  kDone,
};

struct GenerationStop {
  int64_t generation = 0;
  StopCause cause = StopCause::kFailure;
  std::string message = {};  // for people: "replica 1 (10.0.0.2) is lost: silent for 4 s"
};

inline constexpr size_t kMaxLastLineBytes = 1024;

// A rank that failed.
struct FailureReport {
  int replica = 0;  // filled in by Membership
  int process = 0;  // its index in its replica
  int rank = 0;
  std::string role = {};
  int role_rank = -1;        // among the processes of its role; -1: the job has but one
  bool own_trainer = false;  // its exit codes mean what contract/exit_codes.h says
  int exit_code = 0;         // as of a shell: 128 + n for signal n
  int signal = 0;            // 0: it exited
  std::string reason = {};   // "OOMKilled", "Hang" …, or empty
  std::string message = {};  // the report for people; cut after 64 KiB
  // Of its output, the oldest first; each cut after kMaxLastLineBytes.
  std::vector<std::string> last_lines = {};
};

// One launcher's membership in its job. Lives on the loop's thread.
//
// A replica's life: ReportReady → on_start_generation → (ReportFailure)* → on_stop_generation → ReportStopped
// → on_start_generation …, or instead of the stop ReportDone → on_finish. Callbacks come from the event loop,
// never from inside a method of this class, and must not destroy it. After on_finish there are no more of
// them.
class Membership {
 public:
  using Clock = std::chrono::steady_clock;

  // All but the last two must be given (on_failure_reported: at replica 0).
  struct Callbacks {
    // Start this replica's ranks.
    std::function<void(const GenerationStart&)> on_start_generation;
    // Stop this replica's ranks, if any still run, and then ReportStopped(). At most once a generation, but
    // for a second one with kTerminate while the first is being carried out.
    std::function<void(const GenerationStop&)> on_stop_generation;
    // The job is over and nothing runs any more: exit with the code. The message is empty for a plain
    // success.
    std::function<void(int exit_code, const std::string& message)> on_finish;
    // Replica 0 only: a generation ended by a failure and all replicas have stopped. `first` is the failure
    // that caused it, as opposed to those that followed from it. Answer with DecideRestart() or
    // DecideFinish(), now or later. With restarts_alone: each failure as it comes, while the others run on;
    // answer with DecideRestartAlone() or DecideFinish().
    std::function<void(const FailureReport& first)> on_failure_reported;
    // With restarts_alone: start this one again; the others run on. Not after on_stop_generation.
    std::function<void(const ProcessRestart&)> on_restart_process = {};
    // For the log: a launcher is gone. No decision is due: the job goes on when it returns, or finishes with
    // kExitRendezvous when the deadline for that has passed.
    std::function<void(int replica, const std::string& message)> on_peer_lost;
    // For the log: a launcher has (re)joined; at a follower: replica 0.
    std::function<void(int replica, const std::string& host)> on_peer_joined;
  };

  struct Options {
    EventLoop* loop = nullptr;
    contract::Token token;
    std::string job = {};  // metadata.name
    std::string manifest_digest =
        {};  // any string equal on all replicas for equal manifests; at most 128 bytes
    int replica = 0;
    int replicas = 1;
    // Replica 0: HOST:PORT to listen on; empty: any port, of 127.0.0.1 if it is alone, else of all addresses.
    // Others: where replica 0 listens.
    std::string rendezvous = {};
    // Names this launcher's place, a pod's uid, say: whoever comes back under the same name is the same,
    // under another one its successor, after whom it is not taken in again. At most 64 bytes; empty: a random
    // one. At replica 0 also the name of the store.
    std::string instance = {};
    std::string
        advertised_host;  // under which the others reach this replica; empty: as seen on the connection
    int64_t highest_generation = -1;  // seen before this process; a new one gets a higher number
    Clock::duration heartbeat = std::chrono::seconds(1);
    Clock::duration silence = std::chrono::seconds(4);            // after which a peer is lost
    Clock::duration return_deadline = std::chrono::seconds(300);  // for a launcher to come, or to come back
    // Elastic: with how few replicas the job goes on; 0: with all. What follows is of replica 0 only, and
    // coordinator.h says it.
    int min_replicas = 0;
    Clock::duration elastic_wait = std::chrono::seconds(30);
    bool may_grow = true;
    Clock::duration grow_interval = std::chrono::seconds(60);
    // By replica: whether the job is over when the ranks of all such are done; the others are then stopped
    // (kDone), and so is what still runs beside them. Empty: it is over when all are done.
    std::vector<bool> ends_job = {};
    // A rank that fails is started again alone, and a replica that is lost (but replica 0) is taken in again
    // within the same generation when it returns, however long that takes. The others run on.
    bool restarts_alone = false;
    // Each rank listens on MASTER_PORT + its rank.
    bool port_each = false;
    Callbacks callbacks = {};
  };

  // Replica 0: listening when this returns; kUnavailable or kInvalidArgument if it cannot. Others: begins to
  // connect; what comes of it is told by the callbacks.
  static Result<std::unique_ptr<Membership>> Create(Options options);

  virtual ~Membership() = default;

  // Nothing runs here and `processes` (at least 1) can be started. At the beginning, and once more with
  // another number right before a ReportStopped() after which there will be more or fewer.
  virtual void ReportReady(int processes) = 0;
  // The ranks of this replica have ended after on_stop_generation. `exit_code`: what this replica's part of a
  // job that was asked to stop came to (75, 143 …); after kResize: 0 if they were done and need not start
  // again; of no account otherwise. It is ready again.
  virtual void ReportStopped(int exit_code) = 0;
  // A rank failed. To be told before ReportStopped(). The others of this replica run on until
  // on_stop_generation.
  virtual void ReportFailure(FailureReport report) = 0;
  // All ranks of this replica have ended well; with `ends_job`: those that the job is about have.
  virtual void ReportDone() = 0;

  // This launcher was asked to stop (SIGTERM). At replica 0 the whole job ends:
  // on_stop_generation(kTerminate) on all replicas, and then on_finish with the first code other than 0 that
  // ReportStopped() was given, or with `exit_code_if_idle` if nothing ran. Elsewhere this replica leaves in
  // the same way, and the others wait for its return.
  virtual void RequestStop(const std::string& message, int exit_code_if_idle) = 0;

  // Replica 0 only. The next generation, not before `delay` has passed and every replica is there (or, in an
  // elastic job, has been waited for).
  virtual void DecideRestart(Clock::duration delay) = 0;
  // Replica 0 only, with restarts_alone: the rank that failed.
  virtual void DecideRestartAlone(const FailureReport& failure, std::chrono::milliseconds delay) = 0;
  // Replica 0 only, at any time. If ranks run they are stopped first, as by RequestStop().
  virtual void DecideFinish(int exit_code, const std::string& message) = 0;

  // Replica 0 only: another replica 0 has taken this one's place. As DecideFinish(), but the others are not
  // told that the job is over: they look for their new replica 0.
  virtual void Withdraw(int exit_code, const std::string& message) = 0;

  // Where replica 0 listens, with the port it got; at a follower what it was given.
  virtual std::string rendezvous_address() const = 0;
};

}  // namespace lockstep::rendezvous
