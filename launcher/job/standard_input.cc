#include "launcher/job/standard_input.h"

#include <fcntl.h>
#include <unistd.h>

namespace lockstep::job {

StandardInput::StandardInput(int fd) {
  if (fd < 0 || ::fcntl(fd, F_GETFD) < 0 || ::isatty(fd) != 0) return;
  fd_ = fd;
  begin_ = ::lseek(fd, 0, SEEK_CUR);
}

int StandardInput::Give() {
  if (given_ && begin_ >= 0) ::lseek(fd_, begin_, SEEK_SET);
  given_ = true;
  return fd_;
}

}  // namespace lockstep::job
