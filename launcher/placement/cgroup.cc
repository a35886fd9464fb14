#include "launcher/placement/cgroup.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/placement/text_files.h"

namespace lockstep::placement {
namespace {

namespace fs = std::filesystem;

// v1 writes "no limit" as the largest multiple of a page.
constexpr int64_t kUnlimitedMemory = int64_t{1} << 62;

// A mounted hierarchy: where it is, and which cgroup its mount point shows (a container's own, often).
struct CgroupMount {
  std::string mount_point;
  std::string shown;
};

bool Contains(std::string_view list, std::string_view name) {
  const auto parts = Split(list, ',');
  return std::find(parts.begin(), parts.end(), name) != parts.end();
}

// `controller` empty: the v2 hierarchy. man 5 proc, "mountinfo": optional fields end at " - ".
std::optional<CgroupMount> FindMount(std::string_view mountinfo, std::string_view controller) {
  for (const std::string_view line : Split(mountinfo, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = Split(line.substr(0, dash), ' ');
    const auto right = Split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool match =
        controller.empty() ? right[0] == "cgroup2" : right[0] == "cgroup" && Contains(right[2], controller);
    if (match) return CgroupMount{std::string(left[4]), std::string(left[3])};
  }
  return std::nullopt;
}

// The process's cgroup in a hierarchy: "4:cpu,cpuacct:/a/b" of v1, "0::/a/b" of v2. man 7 cgroups.
std::optional<std::string> FindCgroup(std::string_view cgroups, std::string_view controller) {
  for (const std::string_view line : Split(cgroups, '\n')) {
    const size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool match = controller.empty() ? line.substr(0, first) == "0" && controllers.empty()
                                          : Contains(controllers, controller);
    if (match) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// Calls `visit` for the process's own cgroup and for each one above it, as far up as the mount shows them.
void Walk(const fs::path& root, std::string_view cgroups, std::string_view mountinfo,
          std::string_view controller, const std::function<void(const fs::path&)>& visit) {
  const auto mount = FindMount(mountinfo, controller);
  const auto cgroup = FindCgroup(cgroups, controller);
  if (!mount || !cgroup) return;

  // /proc/self/cgroup speaks of the host's path where there is no cgroup namespace, and the mount shows a
  // part of it only. A path outside what is shown ("/../x") leaves the mount point itself.
  const fs::path relative = fs::path(*cgroup).lexically_relative(mount->shown);
  const fs::path base = root / fs::path(mount->mount_point).relative_path();
  const bool inside = !relative.empty() && *relative.begin() != ".." && relative != ".";
  if (inside) {
    for (fs::path path = relative; !path.empty(); path = path.parent_path()) visit(base / path);
  }
  visit(base);
}

template <typename T>
void Tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

void TightenQuota(std::optional<double>& limit, std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (quota && period && *quota > 0 && *period > 0) {
    Tighten(limit, static_cast<double>(*quota) / static_cast<double>(*period));
  }
}

void TightenMemory(std::optional<int64_t>& limit, std::optional<int64_t> bytes) {
  if (bytes && *bytes > 0 && *bytes < kUnlimitedMemory) Tighten(limit, *bytes);
}

// The innermost cgroup that says which CPUs it has decides: those within are subsets of those without.
void TakeCpuset(std::optional<std::vector<int>>& cpuset, const fs::path& file) {
  if (cpuset) return;
  const auto text = ReadText(file);
  if (!text) return;
  auto numbers = ParseNumberList(*text);
  if (numbers && !numbers->empty()) cpuset = std::move(numbers);
}

}  // namespace

CgroupLimits ReadCgroupLimits(const fs::path& root) {
  CgroupLimits limits;
  const auto cgroups = ReadText(root / "proc/self/cgroup");
  const auto mountinfo = ReadText(root / "proc/self/mountinfo");
  if (!cgroups || !mountinfo) return limits;

  Walk(root, *cgroups, *mountinfo, "cpu", [&](const fs::path& cgroup) {
    TightenQuota(limits.cpu_quota, ReadInteger(cgroup / "cpu.cfs_quota_us"),
                 ReadInteger(cgroup / "cpu.cfs_period_us"));
  });
  Walk(root, *cgroups, *mountinfo, "memory", [&](const fs::path& cgroup) {
    TightenMemory(limits.memory_limit, ReadInteger(cgroup / "memory.limit_in_bytes"));
  });
  Walk(root, *cgroups, *mountinfo, "cpuset", [&](const fs::path& cgroup) {
    TakeCpuset(limits.cpuset, cgroup / "cpuset.effective_cpus");
    TakeCpuset(limits.cpuset, cgroup / "cpuset.cpus");
  });
  Walk(root, *cgroups, *mountinfo, "", [&](const fs::path& cgroup) {
    if (const auto text = ReadText(cgroup / "cpu.max")) {  // "150000 100000" or "max 100000"
      const auto parts = Split(Trim(*text), ' ');
      if (parts.size() == 2) TightenQuota(limits.cpu_quota, ParseInteger(parts[0]), ParseInteger(parts[1]));
    }
    TightenMemory(limits.memory_limit, ReadInteger(cgroup / "memory.max"));  // "max" is no number
    TakeCpuset(limits.cpuset, cgroup / "cpuset.cpus.effective");
  });
  return limits;
}

}  // namespace lockstep::placement
