#include "launcher/job/device_map.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/contract/environment.h"
#include "launcher/job/run_folder.h"
#include "launcher/job/translate.h"
#include "launcher/process/run_program.h"
#include "launcher/spec/json.h"

namespace lockstep::job {
namespace {

constexpr std::chrono::seconds kLongest{60};

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
  const Result<process::ProgramOutput> said = process::RunProgram(launch, kLongest);
  if (!said.ok()) return Status(said.status().code(), "device map: " + said.status().message());
  if (said->status.exit_code == 0) return said->out;
  return FailedPrecondition("device map: " + process::LastError(*said));
}

}  // namespace lockstep::job
