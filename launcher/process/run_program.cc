#include "launcher/process/run_program.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

namespace lockstep::process {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostOutput = size_t{1} << 20;

// Reads what there is; false at the end.
bool Append(int fd, std::string* text) {
  char bytes[4096];
  const ssize_t n = ::read(fd, bytes, sizeof bytes);
  if (n > 0) text->append(bytes, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

Result<ProgramOutput> RunProgram(const Launch& launch, std::chrono::seconds limit) {
  const std::string& name = launch.command.front();
  auto spawned = ChildProcess::Spawn(launch);
  if (!spawned.ok()) return spawned.status();
  ProgramOutput output;
  const std::array<std::string*, 2> texts = {&output.out, &output.err};
  std::array<pollfd, 3> ready = {pollfd{.fd = spawned->pipes.out.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = spawned->pipes.err.get(), .events = POLLIN, .revents = 0},
                                 pollfd{.fd = spawned->process.pidfd(), .events = POLLIN, .revents = 0}};
  const auto deadline = Clock::now() + limit;
  std::optional<ExitStatus> status;
  while (!status) {
    if (output.out.size() + output.err.size() > kMostOutput) {
      return ResourceExhausted(name + " writes more than 1 MiB");
    }
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      return DeadlineExceeded(name + " has not ended within " + std::to_string(limit.count()) + " s");
    }
    if (::poll(ready.data(), ready.size(), static_cast<int>(left)) <= 0) continue;
    if (ready[2].revents != 0) {
      spawned->process.SignalGroup(SIGKILL);
      status = spawned->process.TryWait();
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      if (ready[i].revents != 0 && !Append(ready[i].fd, texts[i])) ready[i].fd = -1;
    }
  }
  // What it wrote last is in the pipes still.
  for (size_t i = 0; i < texts.size(); ++i) {
    while (ready[i].fd >= 0 && texts[i]->size() <= kMostOutput && ::poll(&ready[i], 1, 0) > 0 &&
           Append(ready[i].fd, texts[i])) {
    }
  }
  output.status = *status;
  return output;
}

std::string LastError(const ProgramOutput& output) {
  constexpr char kBlanks[] = " \t\r\n\v\f";
  constexpr std::string_view kError = "error: ";
  const std::string_view text = output.err;
  const size_t error = text.rfind(kError);
  const size_t begin =
      error == std::string_view::npos ? text.find_first_not_of(kBlanks) : error + kError.size();
  const size_t end = text.find_last_not_of(kBlanks);
  return begin > end || end == std::string_view::npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

}  // namespace lockstep::process
