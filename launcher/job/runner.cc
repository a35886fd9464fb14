#include "launcher/job/runner.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "common/contract/exit_codes.h"
#include "launcher/job/launcher.h"

namespace lockstep::job {

int Run(const RunOptions& options) {
  Launcher launcher(options);
  if (const Status status = launcher.Start(); !status.ok()) {
    std::fprintf(stderr, "lockstep: %s\n", status.message().c_str());
    return status.retryable() ? contract::kExitRendezvous : contract::kExitUsage;
  }
  return launcher.Run();
}

std::string TrainerProgram() {
  std::array<char, 4096> self{};
  const ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size());
  if (length > 0) {
    const std::string path(self.data(), static_cast<size_t>(length));
    const std::string beside = path.substr(0, path.rfind('/') + 1) + "lockstep-trainer";
    if (::access(beside.c_str(), X_OK) == 0) return beside;
  }
  return "lockstep-trainer";
}

}  // namespace lockstep::job
