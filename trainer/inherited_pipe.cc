#include "trainer/inherited_pipe.h"

#include <fcntl.h>

#include <cstdlib>

namespace lockstep::trainer {

UniqueFd InheritedPipe(const char* variable) {
  const char* number = std::getenv(variable);
  if (number == nullptr) return UniqueFd();
  const int fd = std::atoi(number);
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return UniqueFd();
  return UniqueFd(fd);
}

}  // namespace lockstep::trainer
