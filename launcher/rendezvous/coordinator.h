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
// A failure that only follows from another (kExitCollectiveLost, kExitRendezvous), or that comes after a
// launcher was lost, is not held against the job.
class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Options {
    int replicas = 1;
    Clock::duration return_deadline = std::chrono::seconds(300);
    int64_t highest_generation = -1;
  };

  enum class State { kGathering, kRunning, kStopping, kDeciding, kFinished };

  // To all replicas that are here. processes: by replica.
  struct Start {
    int64_t generation = 0;
    std::vector<int> processes = {};
  };
  // To all replicas that are here.
  struct Stop {
    GenerationStop what = {};
  };
  // To the owner, who answers with DecideRestart() or DecideFinish().
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
  using Action = std::variant<Start, Stop, AskOwner, NotePeerLost, Finish>;
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

  Actions RequestStop(const std::string& message, int exit_code_if_idle);
  Actions DecideRestart(Clock::duration delay, Time now);
  Actions DecideFinish(int exit_code, const std::string& message);

  Actions Tick(Time now);
  std::optional<Time> next_deadline() const;

  State state() const { return state_; }
  int64_t generation() const { return generation_; }
  bool present(int replica) const { return replicas_[replica].present; }

 private:
  struct Replica {
    bool present = false;
    bool ready = false;     // nothing of it runs, and it can start
    bool stopping = false;  // was told to stop and has not said that it has
    bool done = false;
    int processes = 0;
    int64_t highest_generation = -1;
    int stop_exit_code = 0;
    Time absent_since = {};
  };
  // Set when the job is to end after the generation has stopped.
  struct Ending {
    std::optional<int> exit_code = {};  // empty: what the replicas' ranks came to
    std::string message = {};
  };

  Actions StartIfReady(Time now);
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
};

}  // namespace lockstep::rendezvous
