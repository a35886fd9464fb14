#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/event_loop.h"
#include "common/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/exit_report.h"
#include "launcher/process/oom_counter.h"

namespace lockstep::process {

// Drives the processes of one generation on this machine: starts them, passes on what they write, notices
// each end, stops them, and when the last has ended kills whatever they left behind. Then it is ready for the
// next generation.
//
// A process may outlive its generation: it is parked, which is for the caller to agree upon with it, and goes
// on in the next one as the process of the same local rank. While some are parked only the process groups of
// those that ended are killed, and what fled from them when the last of all has ended.
//
// It takes every child of this process for its own or for an orphan of its own: while it is not idle nothing
// else may start processes, but such as nobody waits for (ProgramRun). It makes this process a child
// subreaper and blocks SIGCHLD in the calling thread (create it, or a SignalWatcher, before any other
// thread).
//
// All callbacks come from the event loop, never from inside Start, Stop or StopNow. They may call any
// function of the supervisor but must not destroy it. on_all_stopped may call Start.
class Supervisor {
 public:
  struct Callbacks {
    // Bytes as they were read: partial lines, any bytes. Valid during the call. Never after on_all_stopped,
    // but after on_exit of the same rank where its children still write.
    std::function<void(int local_rank, OutputStream stream, std::string_view bytes)> on_output;
    // One line of the events pipe without its newline, at most contract::kMaxEventBytes.
    std::function<void(int local_rank, std::string_view line)> on_event_line;
    // After everything that the process itself had written. Once for each launch, also for those that could
    // not be started, in the order of the exits. Also for a parked one that ends.
    std::function<void(ExitReport& report)> on_exit;
    // All have ended, nothing of them is left on the machine; or all that have not are parked. Reports in the
    // order of the exits, of this generation. After Stop() of parked ones once more.
    std::function<void(const std::vector<ExitReport>& reports)> on_all_stopped;
  };

  //             Start      Stop       StopNow    grace over  last exit   last but parked  swept
  // kIdle       →kRunning  –          –          –           –           –                –
  // kRunning    refused    →kStopping →kKilling  –           →kSweeping  →kParked         –
  // kStopping   refused    (spared)   →kKilling  →kKilling   →kSweeping  →kParked         –
  // kKilling    refused    (spared)   →kKilling  –           →kSweeping  →kParked         –
  // kParked     →kRunning  →kStopping →kKilling  –           –           –                –
  // kSweeping   refused    –          –          –           –           –                →kIdle
  //
  // on_all_stopped comes with kParked and with kIdle. (spared): →kStopping for those that the Stop before
  // spared, and this one does not.
  enum class State { kIdle, kRunning, kStopping, kKilling, kParked, kSweeping };

  Supervisor(EventLoop& loop, Callbacks callbacks);
  // Kills what still runs, without callbacks; blocks until it is gone.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts all of them. A process that can't be started is reported by on_exit like one that ended at once;
  // the others run. Those of the local ranks in `continued`, which are parked, go on as what their launches
  // say. kFailedPrecondition when not idle (or parked), and while another parked one lives; kInvalidArgument
  // for no launches, a local rank given twice, or nobody parked there.
  Status Start(std::vector<Launch> launches, const std::set<int>& continued = {});

  // Starts one process again that has ended, beside the others of its generation, or as the generation's only
  // one where all have ended. What its group left behind is killed first. Its output and its exit are
  // reported as those of the one before. kFailedPrecondition while the processes are being stopped or swept
  // (try again in on_all_stopped), kInvalidArgument while it runs.
  Status Restart(const Launch& launch);

  // SIGTERM (and SIGCONT, for those that are stopped) to the group of every process, and SIGKILL when `grace`
  // is over. A grace of 0 is StopNow. Does nothing when already stopping. Those of the local ranks in
  // `spared` are left alone: the generation ends when each of them has ended or is parked.
  void Stop(std::chrono::milliseconds grace, const std::set<int>& spared = {});
  void StopNow();

  // The process may be parked one day: from now on what a process of this generation that ended has left in
  // its group is killed at once.
  void MayPark(int local_rank);
  // It waits for the next generation. False when it does not run, or is being stopped.
  bool Park(int local_rank);
  // SIGKILL to the group of one process, which counts as asking it to stop.
  void Drop(int local_rank);
  // Writes to a process's control pipe; false when that cannot be (ControlPipe::Write).
  bool Tell(int local_rank, std::string_view line);

  // Sends `signal` to one process (not its group): SIGABRT for its stacks, say. Doesn't count as asking it to
  // stop.
  void Signal(int local_rank, int signal);

  // Stops and continues the reading of output (not of events): for a console that can't keep up. The
  // processes block in their writes meanwhile.
  void PauseOutput();
  void ResumeOutput();

  State state() const { return state_; }
  // 0 when it doesn't run.
  pid_t pid(int local_rank) const;
  // Lines of the events pipes that were longer than contract::kMaxEventBytes and so were skipped; over all
  // generations.
  uint64_t overlong_event_lines() const { return overlong_event_lines_; }

 private:
  struct Child;
  enum class Event { kStart, kStop, kStopNow, kGraceOver, kLastExit, kSwept };

  Status Prepare();
  Status CheckStart(const std::vector<Launch>& launches, const std::set<int>& continued) const;
  Child* Living(int local_rank) const;
  void Handle(Event event);
  void StartOne(const Launch& launch);
  void Continue(const Launch& launch);
  // That nobody is left but the parked ones is told from the loop.
  void EndSoonIfOver();
  void ReportNotStarted();
  void Finish(Child& child);
  void AskToStop(int signal);
  void WatchPipe(Child& child, int which);
  size_t ReadPipe(Child& child, int which, size_t limit);
  void Drain(Child& child, int which);
  void ClosePipe(Child& child, int which);
  void OnSigchld();
  void OnEnded(Child& child);
  void ReportExit(ExitReport report);
  void ScheduleSweep(std::chrono::milliseconds delay);
  void Sweep();
  void FinishEnded();
  void FinishGeneration(State next);

  EventLoop& loop_;
  Callbacks callbacks_;
  UniqueFd sigchld_;
  OomCounter oom_;
  State state_ = State::kIdle;
  bool output_paused_ = false;
  std::map<int, std::unique_ptr<Child>> children_;  // by local rank
  size_t running_ = 0;                              // not reported yet
  size_t parked_ = 0;                               // of them
  bool some_may_park_ = false;
  std::vector<ExitReport> reports_;
  std::chrono::milliseconds grace_{0};
  EventLoop::TimerId grace_timer_ = 0;
  EventLoop::TimerId sweep_timer_ = 0;
  EventLoop::TimerId not_started_timer_ = 0;
  EventLoop::TimerId over_timer_ = 0;
  std::vector<ExitReport> not_started_;
  std::chrono::steady_clock::time_point sweep_deadline_;
  uint64_t overlong_event_lines_ = 0;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace lockstep::process
