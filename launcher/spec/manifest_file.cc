#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/unique_fd.h"
#include "launcher/spec/manifest.h"

namespace lockstep::spec {

namespace {

Result<std::string> ReadAll(int fd, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count == 0) return text;
    if (count < 0) {
      if (errno == EINTR) continue;
      return Status::FromErrno(errno, name + ": cannot be read");
    }
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxManifestBytes) {
      return ResourceExhausted(name + ": has more than " + std::to_string(kMaxManifestBytes) +
                               " bytes, the most a manifest may have");
    }
  }
}

}  // namespace

Result<std::string> ReadManifestFile(const std::string& path) {
  if (path == "-") return ReadAll(STDIN_FILENO, "standard input");
  // Not blocking: a FIFO without a writer would hold the open.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return Status::FromErrno(errno, path + ": cannot be opened");
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::FromErrno(errno, path + ": cannot be read");
  if (S_ISDIR(info.st_mode)) return InvalidArgument(path + ": is a directory; name the files in it");
  if (!S_ISREG(info.st_mode))
    return InvalidArgument(path + ": is no regular file; pipe it in and write - for it");
  return ReadAll(fd.get(), path);
}

}  // namespace lockstep::spec
