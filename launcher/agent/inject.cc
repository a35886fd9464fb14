#include "launcher/agent/inject.h"

#include <unistd.h>

#include <string>
#include <system_error>

namespace lockstep::agent {

namespace fs = std::filesystem;

Status CopyLauncher(const fs::path& from, const fs::path& to) {
  if (::access((from / "bin/lockstep").c_str(), X_OK) != 0) {
    return FailedPrecondition(
        from.string() +
        " has no launcher that runs in other images: containers/cpu.Containerfile makes an "
        "image that has one");
  }
  try {
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  } catch (const fs::filesystem_error& error) {
    return Unavailable("copy the launcher from " + from.string() + " to " + to.string() + ": " +
                       (error.path2().empty() ? error.path1() : error.path2()).string() + ": " +
                       error.code().message());
  }
  return Status();
}

}  // namespace lockstep::agent
