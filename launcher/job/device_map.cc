#include "launcher/job/device_map.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/contract/environment.h"
#include "launcher/job/run_folder.h"
#include "launcher/job/translate.h"
#include "launcher/placement/text_files.h"
#include "launcher/process/child_process.h"
#include "launcher/spec/json.h"

namespace lockstep::job {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongest{60};
constexpr size_t kMostOutput = size_t{1} << 20;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    path_ = std::filesystem::temp_directory_path(error).string() + "/lockstep-XXXXXX";
    if (error || ::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
};

// Reads what there is; false at the end.
bool Append(int fd, std::string* text) {
  char bytes[4096];
  const ssize_t n = ::read(fd, bytes, sizeof bytes);
  if (n > 0) text->append(bytes, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

struct Said {
  std::string out, err;
  bool ended = false;  // within the time, and without too many words
};

Said Listen(const process::ChildPipes& pipes) {
  Said said;
  pollfd ready[2] = {{.fd = pipes.out.get(), .events = POLLIN, .revents = 0},
                     {.fd = pipes.err.get(), .events = POLLIN, .revents = 0}};
  std::string* const texts[2] = {&said.out, &said.err};
  const auto deadline = Clock::now() + kLongest;
  while (said.out.size() + said.err.size() < kMostOutput) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return said;
    if (::poll(ready, 2, static_cast<int>(left)) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (ready[i].revents != 0 && !Append(ready[i].fd, texts[i])) ready[i].fd = -1;
    }
    said.ended = ready[0].fd < 0 && ready[1].fd < 0;
    if (said.ended) return said;
  }
  return said;
}

}  // namespace

Result<std::string> MapDevices(const spec::TrainingJob& job, const placement::Plan& plan) {
  if (!job.trainer || job.strategy.type != spec::StrategyType::kPipeline || plan.processes.empty()) {
    return std::string();
  }
  const TemporaryFolder folder;
  if (folder.path().empty()) return Status::FromErrno(errno, "device map: make a temporary folder");
  const std::string manifest = folder.path() + "/manifest.json";
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(manifest, spec::ToJson(job) + "\n"));
  process::Launch launch = LaunchOf(job, plan.processes.front());
  launch.command.insert(launch.command.end(), {"device-map", std::to_string(plan.world_size)});
  // A process alone: it meets nobody.
  placement::Environment environment(launch.environment.begin(), launch.environment.end());
  environment[contract::kWorldSize] = environment[contract::kLocalWorldSize] = "1";
  environment[contract::kTrainerConfig] = manifest;
  launch.environment.assign(environment.begin(), environment.end());
  auto spawned = process::ChildProcess::Spawn(launch);
  if (!spawned.ok()) return spawned.status();
  const Said said = Listen(spawned->pipes);
  if (!said.ended) {
    return DeadlineExceeded("device map: the trainer has not found it within " +
                            std::to_string(kLongest.count()) + " s");
  }
  pollfd end{.fd = spawned->process.pidfd(), .events = POLLIN, .revents = 0};
  ::poll(&end, 1, 1000);
  const std::optional<process::ExitStatus> status = spawned->process.TryWait();
  if (status && status->exit_code == 0) return said.out;
  // Its log's last line, without the time.
  const std::string_view text = placement::Trim(said.err);
  constexpr std::string_view kError = "error: ";
  const size_t at = text.rfind(kError);
  return FailedPrecondition(
      "device map: " + std::string(at == std::string_view::npos ? text : text.substr(at + kError.size())));
}

}  // namespace lockstep::job
