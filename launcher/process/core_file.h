#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep::process {

// The path that the kernel gives a core dump by /proc/sys/kernel/core_pattern and core_uses_pid (core(5));
// `folder` is the one that the process was in. Empty where the pattern is a program's, or has anything but
// the pid.
std::string CoreFilePath(std::string pattern, bool uses_pid, pid_t pid, const std::string& folder);

// The core dump of a process that has left one and stayed in its folder (empty: ours); empty where it is not
// there.
std::string FindCoreFile(pid_t pid, const std::string& folder);

}  // namespace lockstep::process
