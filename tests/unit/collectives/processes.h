#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <vector>

namespace lockstep::testing {

// Ranks in processes of their own, forked from here; whoever is left is killed at the end, and they die with
// us.
class Processes {
 public:
  // A rank that throws ends with 1, having said why.
  Processes(int first, int end, const std::function<void(int)>& rank) {
    const pid_t parent = ::getpid();
    for (int r = first; r < end; ++r) {
      const pid_t child = ::fork();
      if (child != 0) {
        pids_.push_back(child);
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      int code = 0;
      try {
        rank(r);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", r, error.what());
        code = 1;
      }
      ::_exit(code);
    }
  }
  ~Processes() {
    for (size_t i = 0; i < pids_.size(); ++i) Kill(i);
    for (size_t i = 0; i < pids_.size(); ++i) Wait(i);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void Kill(size_t i) {
    if (pids_[i] > 0) ::kill(pids_[i], SIGKILL);
  }
  // Its wait status; once for each.
  int Wait(size_t i) {
    int status = -1;
    if (pids_[i] > 0) ::waitpid(pids_[i], &status, 0);
    pids_[i] = -1;
    return status;
  }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace lockstep::testing
