#include "launcher/job/machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "common/contract/environment.h"
#include "launcher/placement/device_choice.h"
#include "launcher/placement/discover.h"

namespace lockstep::job {

namespace fs = std::filesystem;

namespace {

std::string ValueOf(const placement::Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

bool IsReadableFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), R_OK) == 0;
}

}  // namespace

std::string OwnProgram(const std::string& name) {
  std::array<char, 4096> self{};
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  if (length > 0) {
    const std::string path(self.data(), static_cast<size_t>(length));
    const std::string beside = path.substr(0, path.rfind('/') + 1) + name;
    if (::access(beside.c_str(), X_OK) == 0) return beside;
  }
  return name;
}

std::string FindProgram(const std::string& name, const placement::Environment& environment) {
  const auto executable = [](const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return executable(name) ? name : "";
  const std::string path = ValueOf(environment, "PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    if (!folder.empty() && executable(fs::path(folder) / name)) return (fs::path(folder) / name).string();
    begin = end + 1;
  }
  return "";
}

std::string FindCudaPlugin(const std::string& trainer, const placement::Environment& environment) {
  if (const std::string given = ValueOf(environment, contract::kCudaPlugin); !given.empty()) {
    std::error_code error;
    return IsReadableFile(given) ? fs::absolute(given, error).string() : "";
  }
  const std::string program = FindProgram(trainer, environment);
  if (program.empty()) return "";
  std::error_code error;
  const fs::path folder = fs::canonical(program, error).parent_path();
  if (error) return "";
  for (const fs::path& candidate :
       {folder / placement::kCudaPluginFile, folder.parent_path() / "lib" / placement::kCudaPluginFile}) {
    if (IsReadableFile(candidate)) return candidate.string();
  }
  return "";
}

placement::DeviceRequest RequestDevices(const spec::TrainingJob& job, const std::string& role,
                                        const placement::Environment& inherited) {
  return {.role = role,
          .inventory =
              placement::Discover(placement::DiscoverOptionsFrom(inherited, placement::NeedsGpus(job, role))),
          .inherited = inherited,
          .cuda_plugin = FindCudaPlugin(OwnProgram(kTrainer), inherited),
          .mps_control = !FindProgram(kMpsControl, inherited).empty()};
}

}  // namespace lockstep::job
