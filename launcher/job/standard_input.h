#pragma once

#include <sys/types.h>

namespace lockstep::job {

// What rank 0 of a program reads: the launcher's own standard input, where that is a file, a pipe or a
// socket. A terminal is nothing to give: the ranks are in groups of their own, and one that reads in the
// background is stopped by SIGTTIN.
class StandardInput {
 public:
  // Of `fd`, which is not owned and may be closed; -1: there is none.
  explicit StandardInput(int fd);

  // For a process that starts now: a descriptor, or -1 for /dev/null. A file is again where it was in the
  // beginning.
  int Give();

  // Whether a process had it that may have read of it what the next one cannot get.
  bool lacks_its_beginning() const { return given_ && fd_ >= 0 && begin_ < 0; }

 private:
  int fd_ = -1;
  off_t begin_ = -1;  // -1: what is read is gone
  bool given_ = false;
};

}  // namespace lockstep::job
