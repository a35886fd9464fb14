#include "launcher/process/core_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace lockstep::process {

namespace fs = std::filesystem;

std::string CoreFilePath(std::string pattern, bool uses_pid, pid_t pid, const std::string& folder) {
  if (pattern.empty() || pattern.front() == '|') return {};
  std::string name;
  bool has_pid = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name += pattern[i];
      continue;
    }
    const char what = ++i < pattern.size() ? pattern[i] : '\0';
    if (what == '%') {
      name += '%';
    } else if (what == 'p') {
      name += std::to_string(pid);
      has_pid = true;
    } else {
      return {};
    }
  }
  if (uses_pid && !has_pid) name += "." + std::to_string(pid);
  return (fs::path(folder) / name).string();
}

std::string FindCoreFile(pid_t pid, const std::string& folder) {
  std::string pattern;
  std::getline(std::ifstream("/proc/sys/kernel/core_pattern"), pattern);
  int uses_pid = 0;
  std::ifstream("/proc/sys/kernel/core_uses_pid") >> uses_pid;
  std::error_code error;
  const std::string path = CoreFilePath(
      pattern, uses_pid != 0, pid, fs::absolute(folder.empty() ? "." : folder, error).lexically_normal());
  return !path.empty() && fs::is_regular_file(path, error) ? path : "";
}

}  // namespace lockstep::process
