#include "launcher/placement/cpu_topology.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "launcher/placement/text_files.h"

namespace lockstep::placement {
namespace {

namespace fs = std::filesystem;

// What the kernels of oneDNN and of the frameworks choose by (x86 and Arm).
constexpr std::array<std::string_view, 15> kFeatures = {
    "avx",      "avx2",     "fma",      "f16c",  "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "bf16",        "sve"};

// The value of "key<blanks>: value" in `text`.
std::string_view FindField(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && Trim(line.substr(0, colon)) == key) {
      return Trim(line.substr(colon + 1));
    }
  }
  return {};
}

std::vector<int> ReadList(const fs::path& path) {
  const auto text = ReadText(path);
  auto numbers = text ? ParseNumberList(*text) : std::nullopt;
  return numbers ? std::move(*numbers) : std::vector<int>();
}

std::map<int, int> ReadNodes(const fs::path& root) {
  std::map<int, int> node_of;
  const fs::path nodes = root / "sys/devices/system/node";
  for (const int node : ReadList(nodes / "online")) {
    for (const int cpu : ReadList(nodes / ("node" + std::to_string(node)) / "cpulist")) node_of[cpu] = node;
  }
  return node_of;
}

}  // namespace

std::vector<Cpu> ReadCpus(const fs::path& root, const std::optional<std::vector<int>>& cpuset) {
  // The mask comes as text, and not from sched_getaffinity(), so that a recorded machine has one too.
  const auto status = ReadText(root / "proc/self/status");
  const auto allowed = status ? ParseNumberList(FindField(*status, "Cpus_allowed_list")) : std::nullopt;
  if (!allowed) return {};

  std::set<int> usable(allowed->begin(), allowed->end());
  const auto intersect = [&usable](const std::vector<int>& other) {
    const std::set<int> keep(other.begin(), other.end());
    std::erase_if(usable, [&keep](int cpu) { return !keep.contains(cpu); });
  };
  const fs::path cpus = root / "sys/devices/system/cpu";
  if (const auto online = ReadList(cpus / "online"); !online.empty()) intersect(online);
  if (cpuset) intersect(*cpuset);

  const std::map<int, int> node_of = ReadNodes(root);
  // One file for each core and not for each CPU: a large machine has hundreds, and each costs some
  // microseconds.
  std::map<int, int> core_of;
  std::vector<Cpu> result;
  for (const int id : usable) {
    if (!core_of.contains(id)) {
      const auto siblings = ReadList(cpus / ("cpu" + std::to_string(id)) / "topology/thread_siblings_list");
      for (const int sibling : siblings) core_of[sibling] = siblings.front();
      core_of.try_emplace(id, id);
    }
    const auto node = node_of.find(id);
    result.push_back({.id = id, .core = core_of[id], .node = node == node_of.end() ? 0 : node->second});
  }
  return result;
}

CpuModel ReadCpuModel(const fs::path& root) {
  CpuModel model;
  // The first CPU is enough; the whole file of a large machine takes the kernel milliseconds.
  const auto text = ReadText(root / "proc/cpuinfo", 8192);
  if (!text) return model;
  model.name = std::string(FindField(*text, "model name"));
  std::string_view flags = FindField(*text, "flags");
  if (flags.empty()) flags = FindField(*text, "Features");
  const auto words = Split(flags, ' ');
  for (const std::string_view feature : kFeatures) {
    if (std::find(words.begin(), words.end(), feature) != words.end()) model.features.emplace_back(feature);
  }
  return model;
}

int64_t ReadMemoryTotal(const fs::path& root) {
  const auto text = ReadText(root / "proc/meminfo", 4096);
  if (!text) return 0;
  std::string_view value = FindField(*text, "MemTotal");  // "8041232 kB"
  value = value.substr(0, value.find(' '));
  return ParseInteger(value).value_or(0) * 1024;
}

}  // namespace lockstep::placement
