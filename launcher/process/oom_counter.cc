#include "launcher/process/oom_counter.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

namespace lockstep::process {

namespace {

constexpr char kWholeMachine[] = "/proc/vmstat";

struct Mount {
  std::string root;  // of the hierarchy, as seen at the mount point
  std::string point;
};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool HasItem(const std::string& list, std::string_view item) {
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) {
    if (part == item) return true;
  }
  return false;
}

// /proc/self/mountinfo: "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS…] - TYPE SOURCE SUPER_OPTIONS"
// (proc(5)).
Mount FindMount(const std::string& mountinfo, bool version1) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const std::vector<std::string> before = Words(line.substr(0, dash));
    const std::vector<std::string> after = Words(line.substr(dash + 3));
    if (before.size() < 5 || after.size() < 3) continue;
    const bool matches =
        version1 ? after[0] == "cgroup" && HasItem(after[2], "memory") : after[0] == "cgroup2";
    if (matches) return {before[3], before[4]};
  }
  return {};
}

// The path of the process in the hierarchy: "ID:CONTROLLERS:PATH", with "0::PATH" for version 2 (cgroups(7)).
bool FindPath(const std::string& cgroup_text, bool version1, std::string& path) {
  std::istringstream lines(cgroup_text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version1 ? !HasItem(controllers, "memory") : line.substr(0, second) != "0:") continue;
    path = line.substr(second + 1);
    return true;
  }
  return false;
}

// -1 when there is no such counter.
int64_t ReadCounter(const std::string& file) {
  std::istringstream words(ReadFile(file));
  std::string name;
  int64_t value = 0;
  while (words >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return -1;
}

// From the process's own cgroup up to the mount: in a container with a namespace of its own the path may be
// the machine's, and only the mount point itself exists.
std::string ExistingCounter(const Mount& mount, std::string path, const char* name) {
  if (mount.root != "/" && path.starts_with(mount.root)) path.erase(0, mount.root.size());
  while (true) {
    const std::string file = mount.point + (path == "/" ? "" : path) + "/" + name;
    struct stat info;
    if (::stat(file.c_str(), &info) == 0) return file;
    if (path.empty() || path == "/") return {};
    path.erase(path.rfind('/'));
  }
}

}  // namespace

std::string OomCounter::CounterFile(const std::string& cgroup_text, const std::string& mountinfo_text) {
  for (const bool version1 : {true, false}) {
    std::string path;
    if (!FindPath(cgroup_text, version1, path)) continue;
    const Mount mount = FindMount(mountinfo_text, version1);
    if (mount.point.empty()) continue;
    const std::string file = ExistingCounter(mount, path, version1 ? "memory.oom_control" : "memory.events");
    if (!file.empty() && ReadCounter(file) >= 0) return file;
  }
  return kWholeMachine;
}

void OomCounter::Reset() {
  for (auto& [file, taken] : taken_) taken = ReadCounter(file);
  own_file_ = CounterFile(ReadFile("/proc/self/cgroup"), ReadFile("/proc/self/mountinfo"));
  taken_[own_file_] = ReadCounter(own_file_);
}

bool OomCounter::TakeKill(pid_t pid) {
  if (TakeKillIn(own_file_)) return true;
  // In version 1 a process that has ended is shown in the root, whatever cgroup it was in; only version 2
  // still tells the cgroup of one that moved away from ours.
  const std::string cgroup = ReadFile("/proc/" + std::to_string(pid) + "/cgroup");
  const std::string file = CounterFile(cgroup, ReadFile("/proc/self/mountinfo"));
  return file != own_file_ && file != kWholeMachine && TakeKillIn(file);
}

bool OomCounter::TakeKillIn(const std::string& file) {
  int64_t& taken = taken_[file];  // 0 for a cgroup not seen before: one that was made after the start
  if (ReadCounter(file) <= taken) return false;
  ++taken;
  return true;
}

}  // namespace lockstep::process
