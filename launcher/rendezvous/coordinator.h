#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"
#include "launcher/rendezvous/membership.h"

namespace lockstep::rendezvous {

// When a generation starts and ends: replica 0's decisions as a pure state machine. Every input returns what
// is to be done, in order. Time comes in with each input; Tick() is due at next_deadline().
//
//             all ready                 failure, loss, stop             all stopped
//   Gathering ─────────► Running ─────────────────────────► Stopping ──────┬──────► Finished  (asked to end)
//       ▲                   │ all done                                     ├──► Deciding      (a rank failed)
//       │                   └────────► Finished                            │        │ DecideRestart
//       └──────────────────────────────────────────────────────────────────┴────────┘         (a launcher is
//       lost)
//
// With restarts_alone it stays in Running: a rank that failed is started again, and so are all ranks of a
// replica that was lost, when it returns. Only the loss of replica 0, which has the store, ends a generation.
//
// A failure that only follows from another (kExitCollectiveLost, kExitRendezvous), or that comes after a
// launcher was lost, is not held against the job.
//
// An elastic job (min_replicas < replicas) waits for a missing replica only so long, then starts without it
// if enough are here; replica 0 is always one of them. Whoever comes while such a smaller generation runs is
// ready and waits; once the generation has run for grow_interval, and the newcomer has been here for
// grow_settle, it is stopped in the way of a job that is asked to stop, so that nothing is lost, and the next
// one has all that are here.
class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Options {
    int replicas = 1;
    int min_replicas = 0;  // 0, or as many as replicas: not elastic
    // For a replica to come at the very start, and for enough of them to return later.
    Clock::duration return_deadline = std::chrono::seconds(300);
    Clock::duration elastic_wait = std::chrono::seconds(30);  // for a replica to return before it is left out
    bool may_grow = true;  // false: a replica that was left out is taken in again at the next restart only
    Clock::duration grow_interval = std::chrono::seconds(60);
    Clock::duration grow_settle = std::chrono::seconds(3);
    int64_t highest_generation = -1;
    // As in Membership::Options.
    std::vector<bool> ends_job = {};
    bool restarts_alone = false;
  };

  enum class State { kGathering, kRunning, kStopping, kDeciding, kFinished };

  // To all replicas that are here. processes: by replica; 0: it is left out.
  struct Start {
    int64_t generation = 0;
    std::vector<int> processes = {};
  };
  // To one replica that returned: what Start said to the others.
  struct Resume {
    int replica = 0;
    int incarnation = 0;
  };
  // To one replica.
  struct RestartProcess {
    int replica = 0;
    ProcessRestart what = {};
  };
  // To all replicas that are here.
  struct Stop {
    GenerationStop what = {};
  };
  // To the owner, who answers with DecideRestart() or DecideFinish(); with restarts_alone with RestartAlone()
  // or DecideFinish().
  struct AskOwner {
    FailureReport failure = {};
  };
  // To the owner, for the log.
  struct NotePeerLost {
    int replica = 0;
    std::string message = {};
  };
  // To all replicas that are here.
  struct Finish {
    int exit_code = 0;
    std::string message = {};
  };
  using Action = std::variant<Start, Resume, RestartProcess, Stop, AskOwner, NotePeerLost, Finish>;
  using Actions = std::vector<Action>;

  // Replica 0 is here from the beginning, the others are awaited from `now` on.
  Coordinator(const Options& options, Time now);

  // Whether `replica` may join: kInvalidArgument if the job has no such replica, kUnavailable if it is here.
  Status MayJoin(int replica) const;
  // After MayJoin() said yes. `highest_generation`: that it has seen.
  void Joined(int replica, int64_t highest_generation);

  // Of a replica that is here; for a generation other than the current one they change nothing.
  Actions Ready(int replica, int processes, Time now);
  Actions Failed(int64_t generation, const FailureReport& report);
  Actions Stopped(int replica, int64_t generation, int exit_code, Time now);
  Actions Done(int replica, int64_t generation);

  // `why`: "silent for 4 s", "disconnected".
  Actions Lost(int replica, const std::string& why, Time now);
  // It was asked to stop and says so; its ranks are being stopped as those of a job are. So are all others.
  Actions Leaves(int replica, const std::string& why, Time now);

  Actions RequestStop(const std::string& message, int exit_code_if_idle);
  Actions DecideRestart(Clock::duration delay, Time now);
  // Of a rank that failed. Nothing, if its replica is gone by now: it starts all of its own when it returns.
  Actions RestartAlone(int replica, int process, std::chrono::milliseconds delay);
  Actions DecideFinish(int exit_code, const std::string& message);

  Actions Tick(Time now);
  std::optional<Time> next_deadline() const;

  State state() const { return state_; }
  int64_t generation() const { return generation_; }
  bool present(int replica) const { return replicas_[replica].present; }
  // The highest generation that a replica that is here has seen.
  int64_t highest_generation(int replica) const;

 private:
  struct Replica {
    bool present = false;
    bool ready = false;     // nothing of it runs, and it can start
    bool member = false;    // of the current generation
    bool stopping = false;  // was told to stop and has not said that it has
    bool done = false;
    int processes = 0;
    std::vector<int> incarnations = {};  // of its processes in this generation; empty: it has none
    int64_t highest_generation = -1;
    int stop_exit_code = 0;
    Time absent_since = {};
    Time ready_since = {};
  };
  // Set when the job is to end after the generation has stopped.
  struct Ending {
    std::optional<int> exit_code = {};  // empty: what the replicas' ranks came to
    std::string message = {};
  };

  Actions StartIfReady(Time now);
  Actions ResumeReplica(int replica);
  bool EndsJob(size_t replica) const { return options_.ends_job.empty() || options_.ends_job[replica]; }
  Actions Grow();
  Actions Gone(int replica, const std::string& message, StopCause cause, Time now);
  int min_replicas() const;
  int CountPresent() const;
  // How long a missing replica is waited for if enough others are here.
  Clock::duration WaitBeforeLeavingOut() const;
  std::optional<Time> GrowthDue() const;
  Actions StopAll(StopCause cause, const std::string& message);
  Actions AfterStopped(Time now);
  Actions FinishWith(int exit_code, const std::string& message);
  Actions EndJob(Ending ending, int exit_code_if_idle);
  bool AllStopped() const;
  const FailureReport* Culprit() const;

  const Options options_;
  State state_ = State::kGathering;
  int64_t generation_;
  std::vector<Replica> replicas_;
  std::vector<FailureReport> failures_;  // of this generation, in the order they came
  size_t failures_before_loss_ = 0;      // how many came before a launcher was lost
  bool lost_one_ = false;                // a launcher, in this generation
  std::optional<Ending> ending_;
  std::optional<Time> not_before_;  // the backoff of a restart
  bool resizing_ = false;           // this generation stops in order to go on with other replicas
  Time started_ = {};               // this generation
  Time seen_ = {};                  // the latest that was told
};

}  // namespace lockstep::rendezvous
