#include "launcher/job/runner.h"

#include <cstdio>

#include "common/contract/exit_codes.h"
#include "launcher/job/launcher.h"

namespace lockstep::job {

Outcome Run(const RunOptions& options) {
  Launcher launcher(options);
  if (const Status status = launcher.Start(); !status.ok()) {
    std::fprintf(stderr, "lockstep: %s\n", status.message().c_str());
    return {.exit_code = status.retryable() ? contract::kExitRendezvous : contract::kExitUsage,
            .message = status.message()};
  }
  return launcher.Run();
}

}  // namespace lockstep::job
