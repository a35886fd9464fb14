#include "launcher/process/supervisor.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "launcher/process/descendants.h"
#include "launcher/process/event_lines.h"

namespace lockstep::process {

namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr int kOut = 0, kErr = 1, kEvents = 2;
constexpr auto kSweepInterval = std::chrono::milliseconds(5);
constexpr auto kSweepLimit = std::chrono::seconds(5);

using SystemClock = std::chrono::system_clock;

}  // namespace

struct Supervisor::Child {
  ExitReport report;  // what is known of it so far
  ChildProcess process;
  std::array<UniqueFd, 3> pipes;
  int signal_sent = 0;  // by AskToStop, the last one
  EventLines event_lines;
};

Supervisor::Supervisor(EventLoop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {}

Supervisor::~Supervisor() {
  for (const EventLoop::TimerId timer : {grace_timer_, sweep_timer_, not_started_timer_}) loop_.Cancel(timer);
  if (sigchld_) loop_.Unwatch(sigchld_.get());
  for (auto& [local_rank, child] : children_) {
    if (child->process.pid() != 0) loop_.Unwatch(child->process.pidfd());
    for (int which = 0; which < 3; ++which) ClosePipe(*child, which);
    child->process.SignalGroup(SIGKILL);
  }
  children_.clear();
  if (state_ != State::kIdle) SweepDescendants(kSweepLimit);
}

Status Supervisor::Prepare() {
  if (sigchld_) return {};
  BecomeSubreaper();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return Status::FromErrno(error, "block SIGCHLD");
  }
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return Status::FromErrno(errno, "signalfd for SIGCHLD");
  LOCKSTEP_RETURN_IF_ERROR(loop_.Watch(fd.get(), EPOLLIN, [this](uint32_t) { OnSigchld(); }));
  sigchld_ = std::move(fd);
  buffer_ = std::make_unique<char[]>(kReadBytes);
  return {};
}

Status Supervisor::Start(std::vector<Launch> launches) {
  if (state_ != State::kIdle)
    return FailedPrecondition("start of a generation: the one before has not ended");
  if (launches.empty()) return InvalidArgument("start of a generation: there is nothing to start");
  std::set<int> local_ranks;
  for (const Launch& launch : launches) {
    if (!local_ranks.insert(launch.local_rank).second) {
      return InvalidArgument("start of a generation: local rank " + std::to_string(launch.local_rank) +
                             " is given twice");
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  oom_.Reset();
  Handle(Event::kStart);
  running_ = launches.size();
  for (const Launch& launch : launches) StartOne(launch);
  if (!not_started_.empty()) {
    not_started_timer_ = loop_.After(std::chrono::milliseconds(0), [this] {
      not_started_timer_ = 0;
      for (ExitReport& report : std::exchange(not_started_, {})) ReportExit(std::move(report));
    });
  }
  return {};
}

void Supervisor::StartOne(const Launch& launch) {
  ExitReport report;
  report.rank = launch.rank;
  report.local_rank = launch.local_rank;
  report.role = launch.role;
  report.own_trainer = launch.own_trainer;
  report.started = SystemClock::now();

  Result<ChildProcess::Spawned> spawned = ChildProcess::Spawn(launch);
  auto child = std::make_unique<Child>();
  Status status = spawned.status();
  if (status.ok()) {
    child->process = std::move(spawned->process);
    child->pipes = {std::move(spawned->pipes.out), std::move(spawned->pipes.err),
                    std::move(spawned->pipes.events)};
    status =
        loop_.Watch(child->process.pidfd(), EPOLLIN, [this, raw = child.get()](uint32_t) { OnEnded(*raw); });
  }
  if (!status.ok()) {
    const SpawnFailure failure = SpawnFailureOf(status);
    report.exit_code = failure == SpawnFailure::kNotFound        ? contract::kExitNotFound
                       : failure == SpawnFailure::kCannotExecute ? contract::kExitCannotExecute
                                                                 : contract::kExitRetryable;
    report.reason =
        failure == SpawnFailure::kResources ? ExitReason::kNotStarted : ExitReason::kCannotExecute;
    report.detail = status.message();
    report.ended = report.started;
    not_started_.push_back(std::move(report));
    return;
  }
  report.pid = child->process.pid();
  child->report = std::move(report);
  for (int which = 0; which < 3; ++which) WatchPipe(*child, which);
  children_[launch.local_rank] = std::move(child);
}

void Supervisor::Stop(std::chrono::milliseconds grace) {
  grace_ = grace;
  Handle(grace.count() > 0 ? Event::kStop : Event::kStopNow);
}

void Supervisor::StopNow() { Handle(Event::kStopNow); }

void Supervisor::Handle(Event event) {
  const auto kill_all = [this] {
    loop_.Cancel(std::exchange(grace_timer_, 0));
    state_ = State::kKilling;
    AskToStop(SIGKILL);
  };
  const auto sweep = [this] {
    loop_.Cancel(std::exchange(grace_timer_, 0));
    state_ = State::kSweeping;
    sweep_deadline_ = EventLoop::Clock::now() + kSweepLimit;
    ScheduleSweep(std::chrono::milliseconds(0));
  };
  switch (state_) {
    case State::kIdle:
      if (event == Event::kStart) state_ = State::kRunning;
      return;
    case State::kRunning:
      if (event == Event::kStop) {
        state_ = State::kStopping;
        grace_timer_ = loop_.After(grace_, [this] {
          grace_timer_ = 0;
          Handle(Event::kGraceOver);
        });
        AskToStop(SIGTERM);
      }
      if (event == Event::kStopNow) kill_all();
      if (event == Event::kLastExit) sweep();
      return;
    case State::kStopping:
      if (event == Event::kStopNow || event == Event::kGraceOver) kill_all();
      if (event == Event::kLastExit) sweep();
      return;
    case State::kKilling:
      if (event == Event::kLastExit) sweep();
      return;
    case State::kSweeping:
      if (event == Event::kSwept) FinishGeneration();
      return;
  }
}

void Supervisor::AskToStop(int signal) {
  for (auto& [local_rank, child] : children_) {
    // One that has ended and was not seen to yet ended for a reason of its own.
    if (child->process.pid() == 0 || child->process.Peek()) continue;
    child->report.asked_to_stop = true;
    child->signal_sent = signal;
    child->process.SignalGroup(signal);
    if (signal == SIGTERM) child->process.SignalGroup(SIGCONT);
  }
}

void Supervisor::Signal(int local_rank, int signal) {
  const auto it = children_.find(local_rank);
  if (it != children_.end()) it->second->process.Signal(signal);
}

pid_t Supervisor::pid(int local_rank) const {
  const auto it = children_.find(local_rank);
  return it == children_.end() ? 0 : it->second->process.pid();
}

void Supervisor::PauseOutput() {
  if (std::exchange(output_paused_, true)) return;
  // Unwatched rather than watched for nothing: epoll reports a hang-up all the same, and would do so
  // endlessly.
  for (auto& [local_rank, child] : children_) {
    for (const int which : {kOut, kErr}) {
      if (child->pipes[which]) loop_.Unwatch(child->pipes[which].get());
    }
  }
}

void Supervisor::ResumeOutput() {
  if (!std::exchange(output_paused_, false)) return;
  for (auto& [local_rank, child] : children_) {
    for (const int which : {kOut, kErr}) WatchPipe(*child, which);
  }
}

void Supervisor::WatchPipe(Child& child, int which) {
  if (!child.pipes[which] || (output_paused_ && which != kEvents)) return;
  const Status status = loop_.Watch(child.pipes[which].get(), EPOLLIN, [this, raw = &child, which](uint32_t) {
    ReadPipe(*raw, which, kReadBytes);
  });
  if (!status.ok())
    log::Warning("output of rank " + std::to_string(child.report.rank) + ": " + status.message());
}

// Reads once, at most `limit` bytes; 0 when there is nothing more, now or ever.
size_t Supervisor::ReadPipe(Child& child, int which, size_t limit) {
  if (!child.pipes[which]) return 0;
  ssize_t size;
  do {
    size = ::read(child.pipes[which].get(), buffer_.get(), std::min(limit, kReadBytes));
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return 0;
  if (size <= 0) {
    ClosePipe(child, which);
    return 0;
  }
  const std::string_view bytes(buffer_.get(), static_cast<size_t>(size));
  if (which == kEvents) {
    overlong_event_lines_ += child.event_lines.Feed(bytes, [&](std::string_view line) {
      if (callbacks_.on_event_line) callbacks_.on_event_line(child.report.local_rank, line);
    });
  } else if (callbacks_.on_output) {
    callbacks_.on_output(child.report.local_rank,
                         which == kOut ? OutputStream::kStdout : OutputStream::kStderr, bytes);
  }
  return bytes.size();
}

// What is in the pipe now, and not what others who hold it may go on writing.
void Supervisor::Drain(Child& child, int which) {
  int waiting = 0;
  if (!child.pipes[which] || ::ioctl(child.pipes[which].get(), FIONREAD, &waiting) != 0) return;
  for (size_t left = static_cast<size_t>(std::max(waiting, 0)); left > 0;) {
    const size_t size = ReadPipe(child, which, left);
    if (size == 0) return;
    left -= std::min(left, size);
  }
}

void Supervisor::ClosePipe(Child& child, int which) {
  if (!child.pipes[which]) return;
  loop_.Unwatch(child.pipes[which].get());
  child.pipes[which].reset();
}

void Supervisor::OnSigchld() {
  std::array<signalfd_siginfo, 16> infos;
  while (::read(sigchld_.get(), infos.data(), sizeof infos) > 0) {
  }
  if (state_ == State::kSweeping) {
    ScheduleSweep(std::chrono::milliseconds(0));
    return;
  }
  // Orphans that fell to us are released as they end, so that no zombies pile up during a long generation.
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const auto own = std::find_if(children_.begin(), children_.end(), [&](const auto& entry) {
      return entry.second->process.pid() == info.si_pid;
    });
    if (own != children_.end()) {
      OnEnded(*own->second);
    } else {
      ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    }
  }
}

void Supervisor::OnEnded(Child& child) {
  const pid_t pid = child.process.pid();
  const std::optional<ExitStatus> end = child.process.Peek();
  if (!end) return;
  loop_.Unwatch(child.process.pidfd());
  for (int which = 0; which < 3; ++which) Drain(child, which);

  ExitReport& report = child.report;
  report.ended = SystemClock::now();
  const bool ours = end->signal != 0 &&
                    (end->signal == child.signal_sent || (end->signal == SIGTERM && report.asked_to_stop));
  if (end->signal == SIGKILL && !ours && oom_.TakeKill(pid)) {
    report.reason = ExitReason::kOutOfMemory;
    report.asked_to_stop = false;
  } else if (end->signal != 0) {
    report.reason = ours ? ExitReason::kStopped : ExitReason::kSignal;
  } else {
    report.reason = end->exit_code == 0 ? ExitReason::kCompleted : ExitReason::kError;
  }
  const std::optional<ExitStatus> status = child.process.TryWait();
  report.exit_code = end->exit_code;
  report.signal = end->signal;
  report.core_dumped = end->core_dumped;
  report.max_rss_bytes = status ? status->max_rss_bytes : 0;
  ReportExit(report);
}

void Supervisor::ReportExit(ExitReport report) {
  --running_;
  reports_.push_back(std::move(report));
  if (callbacks_.on_exit) callbacks_.on_exit(reports_.back());
  if (running_ == 0) Handle(Event::kLastExit);
}

void Supervisor::ScheduleSweep(std::chrono::milliseconds delay) {
  loop_.Cancel(sweep_timer_);
  sweep_timer_ = loop_.After(delay, [this] {
    sweep_timer_ = 0;
    Sweep();
  });
}

void Supervisor::Sweep() {
  if (SweepDescendantsOnce()) {
    Handle(Event::kSwept);
    return;
  }
  if (EventLoop::Clock::now() < sweep_deadline_) {
    ScheduleSweep(kSweepInterval);
    return;
  }
  std::string left;
  for (const pid_t pid : Descendants(::getpid())) left += " " + std::to_string(pid);
  log::Warning("processes left by the ranks that could not be killed:" + left);
  Handle(Event::kSwept);
}

void Supervisor::FinishGeneration() {
  for (auto& [local_rank, child] : children_) {
    for (int which = 0; which < 3; ++which) {
      Drain(*child, which);
      ClosePipe(*child, which);
    }
    const std::string last = child->event_lines.TakeRest();
    if (!last.empty() && callbacks_.on_event_line) callbacks_.on_event_line(local_rank, last);
  }
  children_.clear();
  state_ = State::kIdle;
  const std::vector<ExitReport> reports = std::exchange(reports_, {});
  if (callbacks_.on_all_stopped) callbacks_.on_all_stopped(reports);
}

}  // namespace lockstep::process
