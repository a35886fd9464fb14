#include "launcher/job/runner.h"

#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "launcher/job/launcher.h"

namespace lockstep::job {

Outcome Run(const RunOptions& options) {
  Launcher launcher(options);
  if (const Status status = launcher.Start(); !status.ok()) {
    log::WriteLine(log::Level::kError, "lockstep", status.message());
    return {.exit_code = status.retryable() ? contract::kExitRendezvous : contract::kExitUsage,
            .message = status.message()};
  }
  return launcher.Run();
}

}  // namespace lockstep::job
