#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace lockstep::process {

// Tells a kill by the kernel's out-of-memory killer from other SIGKILLs, by the counter that the kernel keeps
// for each memory cgroup: `oom_kill` in memory.oom_control (version 1) or memory.events (version 2), and in
// /proc/vmstat for the whole machine where there is no such file.
class OomCounter {
 public:
  // The file with the counter of a process, from the texts of its /proc/PID/cgroup and of
  // /proc/self/mountinfo.
  static std::string CounterFile(const std::string& cgroup_text, const std::string& mountinfo_text);

  // Forgets all kills until now. Call it before the processes are started.
  void Reset();

  // Whether the out-of-memory killer has struck in this process's memory cgroup, or in that of `pid`
  // (running, or ended and not yet waited for), more often than this function has said so. Each kill is told
  // once.
  bool TakeKill(pid_t pid);

 private:
  bool TakeKillIn(const std::string& file);

  std::string own_file_;
  std::map<std::string, int64_t> taken_;  // by counter file: kills already told
};

}  // namespace lockstep::process
