#include "tests/support/cuda_on_host/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace lockstep::cuda_on_host {

int MakeSharedFile(size_t bytes) {
  const int fd = ::memfd_create("cuda_on_host", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

SharedFileName NameOf(int fd, size_t bytes, size_t offset) {
  struct stat status {};
  ::fstat(fd, &status);
  return {.process = ::getpid(), .fd = fd, .inode = status.st_ino, .bytes = bytes, .offset = offset};
}

int OpenSharedFile(const SharedFileName& name) {
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || status.st_ino != name.inode ||
      static_cast<uint64_t>(status.st_size) != name.bytes) {
    ::close(fd);
    return -1;
  }
  return fd;
}

}  // namespace lockstep::cuda_on_host
