#include "launcher/process/program_run.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace lockstep::process {

Result<std::unique_ptr<ProgramRun>> ProgramRun::Start(EventLoop& loop, Options options) {
  auto spawned = ChildProcess::Spawn(options.launch);
  if (!spawned.ok()) return spawned.status();
  std::unique_ptr<ProgramRun> run(new ProgramRun(loop, std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(run->Watch(std::move(*spawned)));
  return run;
}

Status ProgramRun::Watch(ChildProcess::Spawned spawned) {
  process_ = std::move(spawned.process);
  for (auto& [mine, pipe] : {std::pair(&out_, &spawned.pipes.out), std::pair(&err_, &spawned.pipes.err)}) {
    LOCKSTEP_RETURN_IF_ERROR(
        loop_.Watch(pipe->get(), EPOLLIN, [this, mine = mine](uint32_t) { Read(*mine); }));
    *mine = std::move(*pipe);
  }
  LOCKSTEP_RETURN_IF_ERROR(loop_.Watch(process_.pidfd(), EPOLLIN, [this](uint32_t) { OnEnded(); }));
  watched_ = true;
  timer_ = loop_.After(options_.limit, [this] {
    timer_ = 0;
    process_.SignalGroup(SIGKILL);
    Tell(/*in_time=*/false);
  });
  return {};
}

ProgramRun::~ProgramRun() {
  loop_.Cancel(timer_);
  if (watched_) loop_.Unwatch(process_.pidfd());
  Close(out_);
  Close(err_);
}

void ProgramRun::Read(UniqueFd& pipe) {
  std::array<char, 16 * 1024> bytes;
  const ssize_t n = ::read(pipe.get(), bytes.data(), bytes.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Close(pipe);
  // What is too much is read all the same: it must not wait for us.
  text_.append(bytes.data(), std::min(static_cast<size_t>(n), options_.most_bytes - text_.size()));
}

void ProgramRun::Close(UniqueFd& pipe) {
  if (!pipe) return;
  loop_.Unwatch(pipe.get());
  pipe.reset();
}

void ProgramRun::OnEnded() {
  loop_.Unwatch(process_.pidfd());
  watched_ = false;
  process_.SignalGroup(SIGKILL);  // what it left
  process_.TryWait();
  for (UniqueFd* const pipe : {&out_, &err_}) {
    // What it wrote last; somebody else may hold the pipe.
    for (size_t before = text_.size() + 1; *pipe && text_.size() != before;) {
      before = text_.size();
      Read(*pipe);
    }
  }
  if (timer_ != 0) Tell(/*in_time=*/true);
}

void ProgramRun::Tell(bool in_time) {
  loop_.Cancel(std::exchange(timer_, 0));
  Close(out_);
  Close(err_);
  options_.on_end(std::move(text_), in_time);
}

}  // namespace lockstep::process
