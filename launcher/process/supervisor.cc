#include "launcher/process/supervisor.h"

#include <signal.h>
#include <sys/epoll.h>
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
#include "launcher/process/supervisor_child.h"

namespace lockstep::process {

namespace {

constexpr auto kSweepInterval = std::chrono::milliseconds(5);

using SystemClock = std::chrono::system_clock;

}  // namespace

Supervisor::Supervisor(EventLoop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {}

Supervisor::~Supervisor() {
  for (const EventLoop::TimerId timer : {grace_timer_, sweep_timer_, not_started_timer_, over_timer_})
    loop_.Cancel(timer);
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

Status Supervisor::CheckStart(const std::vector<Launch>& launches, const std::set<int>& continued) const {
  const std::string what = "start of a generation: ";
  if (state_ != State::kIdle && state_ != State::kParked)
    return FailedPrecondition(what + "the one before has not ended");
  if (launches.empty()) return InvalidArgument(what + "there is nothing to start");
  std::set<int> local_ranks;
  for (const Launch& launch : launches) {
    if (!local_ranks.insert(launch.local_rank).second) {
      return InvalidArgument(what + "local rank " + std::to_string(launch.local_rank) + " is given twice");
    }
  }
  for (const int local_rank : continued) {
    const Child* const child = Living(local_rank);
    if (child == nullptr || !child->parked || !local_ranks.contains(local_rank)) {
      return InvalidArgument(what + "nobody is parked at local rank " + std::to_string(local_rank));
    }
  }
  for (const auto& [local_rank, child] : children_) {
    if (child->process.pid() != 0 && !continued.contains(local_rank)) {
      return FailedPrecondition(what + "local rank " + std::to_string(local_rank) + " has not ended");
    }
  }
  return {};
}

Status Supervisor::Start(std::vector<Launch> launches, const std::set<int>& continued) {
  LOCKSTEP_RETURN_IF_ERROR(CheckStart(launches, continued));
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  oom_.Reset();
  Handle(Event::kStart);
  running_ = launches.size();
  reports_.clear();
  for (const Launch& launch : launches) {
    continued.contains(launch.local_rank) ? Continue(launch) : StartOne(launch);
  }
  if (!not_started_.empty()) ReportNotStarted();
  return {};
}

Status Supervisor::Restart(const Launch& launch) {
  if (state_ == State::kIdle) return Start({launch});
  const std::string what = "start of rank " + std::to_string(launch.rank) + " again: ";
  if (state_ != State::kRunning) return FailedPrecondition(what + "the processes are being stopped");
  if (pid(launch.local_rank) != 0) return InvalidArgument(what + "it runs");
  if (const auto it = children_.find(launch.local_rank); it != children_.end()) {
    Finish(*it->second);
    children_.erase(it);
  }
  ++running_;
  StartOne(launch);
  if (!not_started_.empty() && not_started_timer_ == 0) ReportNotStarted();
  return {};
}

// From the loop, never from inside Start() or Restart().
void Supervisor::ReportNotStarted() {
  not_started_timer_ = loop_.After(std::chrono::milliseconds(0), [this] {
    not_started_timer_ = 0;
    for (ExitReport& report : std::exchange(not_started_, {})) ReportExit(std::move(report));
  });
}

void Supervisor::StartOne(const Launch& launch) {
  ExitReport report;
  report.name = launch.name;
  report.rank = launch.rank;
  report.local_rank = launch.local_rank;
  report.role = launch.role;
  report.role_rank = launch.role_rank;
  report.own_trainer = launch.own_trainer;
  report.started = SystemClock::now();

  Result<ChildProcess::Spawned> spawned = ChildProcess::Spawn(launch);
  auto child = std::make_unique<Child>();
  Status status = spawned.status();
  if (status.ok()) {
    child->process = std::move(spawned->process);
    child->pipes = {std::move(spawned->pipes.out), std::move(spawned->pipes.err),
                    std::move(spawned->pipes.events)};
    child->control = std::make_unique<ControlPipe>(loop_, std::move(spawned->pipes.control));
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
  child->restarts_alone = launch.restarts_alone;
  child->report = std::move(report);
  for (int which = 0; which < 3; ++which) WatchPipe(*child, which);
  children_[launch.local_rank] = std::move(child);
}

void Supervisor::Continue(const Launch& launch) {
  Child& child = *children_.at(launch.local_rank);
  ExitReport& report = child.report;
  report.rank = launch.rank;
  report.role = launch.role;
  report.role_rank = launch.role_rank;
  child.spared = false;
  child.parked = false;
  --parked_;
}

void Supervisor::Stop(std::chrono::milliseconds grace, const std::set<int>& spared) {
  const bool stopping = state_ == State::kStopping || state_ == State::kKilling;
  bool fewer_spared = false;
  for (auto& [local_rank, child] : children_) {
    const bool spare = spared.contains(local_rank) && (!stopping || child->spared);
    fewer_spared = fewer_spared || (child->spared && !spare && child->process.pid() != 0);
    child->spared = spare;
  }
  if (stopping && !fewer_spared) return;
  grace_ = grace;
  Handle(grace.count() > 0 ? Event::kStop : Event::kStopNow);
}

void Supervisor::StopNow() {
  for (auto& [local_rank, child] : children_) child->spared = false;
  Handle(Event::kStopNow);
}

Supervisor::Child* Supervisor::Living(int local_rank) const {
  const auto it = children_.find(local_rank);
  return it == children_.end() || it->second->process.pid() == 0 ? nullptr : it->second.get();
}

void Supervisor::MayPark(int local_rank) {
  if (Living(local_rank) != nullptr) some_may_park_ = true;
}

bool Supervisor::Park(int local_rank) {
  Child* const child = Living(local_rank);
  if (child == nullptr || child->report.asked_to_stop) return false;
  if (std::exchange(child->parked, true)) return true;
  ++parked_;
  EndSoonIfOver();
  return true;
}

void Supervisor::Drop(int local_rank) {
  Child* const child = Living(local_rank);
  if (child == nullptr) return;
  if (std::exchange(child->parked, false)) --parked_;
  child->report.asked_to_stop = true;
  child->signal_sent = SIGKILL;
  child->process.SignalGroup(SIGKILL);
}

bool Supervisor::Tell(int local_rank, std::string_view line) {
  Child* const child = Living(local_rank);
  return child != nullptr && child->control->Write(line);
}

void Supervisor::EndSoonIfOver() {
  if (running_ != parked_ || over_timer_ != 0) return;
  over_timer_ = loop_.After(std::chrono::milliseconds(0), [this] {
    over_timer_ = 0;
    if (running_ == parked_ && state_ != State::kParked) Handle(Event::kLastExit);
  });
}

void Supervisor::Handle(Event event) {
  const auto kill_all = [this] {
    loop_.Cancel(std::exchange(grace_timer_, 0));
    state_ = State::kKilling;
    AskToStop(SIGKILL);
  };
  const auto stop = [this] {
    loop_.Cancel(grace_timer_);
    state_ = State::kStopping;
    grace_timer_ = loop_.After(grace_, [this] {
      grace_timer_ = 0;
      Handle(Event::kGraceOver);
    });
    AskToStop(SIGTERM);
  };
  const auto over = [this] {
    loop_.Cancel(std::exchange(grace_timer_, 0));
    if (parked_ > 0) return FinishGeneration(State::kParked);
    state_ = State::kSweeping;
    sweep_deadline_ = EventLoop::Clock::now() + kSweepLimit;
    ScheduleSweep(std::chrono::milliseconds(0));
  };
  switch (state_) {
    case State::kIdle:
      if (event == Event::kStart) state_ = State::kRunning;
      return;
    case State::kParked:
      if (event == Event::kStart) state_ = State::kRunning;
      if (event != Event::kStop && event != Event::kStopNow) return;
      if (running_ == 0) return over();
      event == Event::kStop ? stop() : kill_all();
      return;
    case State::kRunning:
      if (event == Event::kStop) stop();
      if (event == Event::kStopNow) kill_all();
      if (event == Event::kLastExit) over();
      return;
    case State::kStopping:
    case State::kKilling:
      if (event == Event::kStop) stop();  // those that were spared till now
      if (event == Event::kStopNow || event == Event::kGraceOver) kill_all();
      if (event == Event::kLastExit) over();
      return;
    case State::kSweeping:
      if (event == Event::kSwept) FinishGeneration(State::kIdle);
      return;
  }
}

void Supervisor::AskToStop(int signal) {
  for (auto& [local_rank, child] : children_) {
    // One that has ended and was not seen to yet ended for a reason of its own.
    if (child->spared || child->process.pid() == 0 || child->process.Peek()) continue;
    if (child->signal_sent != 0 && signal != SIGKILL) continue;  // it was asked already
    if (std::exchange(child->parked, false)) --parked_;
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
  // Before it is waited for: its group's number cannot be another's yet. Others are swept with all the rest.
  if (child.restarts_alone || some_may_park_) child.process.SignalGroup(SIGKILL);
  const std::optional<ExitStatus> status = child.process.TryWait();
  report.exit_code = end->exit_code;
  report.signal = end->signal;
  report.core_dumped = end->core_dumped;
  report.max_rss_bytes = status ? status->max_rss_bytes : 0;
  if (std::exchange(child.parked, false)) --parked_;
  ReportExit(report);
}

void Supervisor::ReportExit(ExitReport report) {
  --running_;
  reports_.push_back(std::move(report));
  if (callbacks_.on_exit) callbacks_.on_exit(reports_.back());
  if (state_ == State::kParked) return FinishEnded();
  if (running_ == parked_) Handle(Event::kLastExit);
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

void Supervisor::FinishEnded() {
  for (auto it = children_.begin(); it != children_.end();) {
    if (it->second->process.pid() != 0) {
      ++it;
      continue;
    }
    Finish(*it->second);
    it = children_.erase(it);
  }
}

void Supervisor::FinishGeneration(State next) {
  FinishEnded();
  state_ = next;
  some_may_park_ = next == State::kParked;
  const std::vector<ExitReport> reports = std::exchange(reports_, {});
  if (callbacks_.on_all_stopped) callbacks_.on_all_stopped(reports);
}

}  // namespace lockstep::process
