#include <nlohmann/json.hpp>
#include <set>

#include "launcher/placement/memory_share.h"
#include "launcher/placement/render.h"
#include "launcher/placement/text_files.h"
#include "launcher/placement/yaml_text.h"

namespace lockstep::placement {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLabelWidth = 10;

std::string Row(std::string label, const std::string& text) {
  label.resize(std::max(kLabelWidth, label.size() + 2), ' ');
  return label + text + "\n";
}

std::string Count(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string CpuText(const Inventory& inventory) {
  std::set<int> nodes;
  std::vector<int> ids;
  for (const Cpu& cpu : inventory.cpus) {
    nodes.insert(cpu.node);
    ids.push_back(cpu.id);
  }
  std::string text = Count(static_cast<size_t>(PhysicalCores(inventory)), "core") + " (CPUs " +
                     FormatNumberList(ids) + ") on " + Count(nodes.size(), "NUMA node");
  if (!inventory.cpu_model.empty()) text += ", " + inventory.cpu_model;
  return text;
}

std::string GpuText(const Gpu& gpu) {
  std::string text = gpu.name.empty() ? "unknown" : gpu.name;
  if (gpu.memory_bytes > 0) text += ", " + FormatBytes(gpu.memory_bytes);
  if (!gpu.uuid.empty()) text += ", " + gpu.uuid;
  if (!gpu.pci_bus_id.empty()) text += ", PCI " + gpu.pci_bus_id;
  if (gpu.numa_node >= 0) text += ", NUMA node " + std::to_string(gpu.numa_node);
  if (gpu.mig) text += ", MIG mode with " + Count(gpu.slices.size(), "slice");
  if (!gpu.error.empty()) text += ", cannot be used: " + gpu.error;
  return text;
}

Json GpuJson(const Gpu& gpu) {
  Json json = {{"index", gpu.index},
               {"uuid", gpu.uuid},
               {"name", gpu.name},
               {"memoryBytes", gpu.memory_bytes},
               {"pciBusId", gpu.pci_bus_id},
               {"numaNode", gpu.numa_node},
               {"mig", gpu.mig},
               {"slices", Json::array()}};
  for (const MigSlice& slice : gpu.slices) {
    json["slices"].push_back(
        {{"uuid", slice.uuid}, {"name", slice.name}, {"memoryBytes", slice.memory_bytes}});
  }
  if (!gpu.error.empty()) json["error"] = gpu.error;
  return json;
}

}  // namespace

std::string RenderInventoryTable(const Inventory& inventory) {
  std::string text = Row("CPU", CpuText(inventory));
  if (!inventory.cpu_features.empty()) {
    std::string features;
    for (const std::string& feature : inventory.cpu_features)
      features += (features.empty() ? "" : " ") + feature;
    text += Row("", features);
  }
  if (inventory.cpu_quota) {
    char quota[32];
    std::snprintf(quota, sizeof(quota), "%.4g", *inventory.cpu_quota);
    text += Row("Quota", std::string(quota) + " CPUs by cgroup");
  }
  text += Row("Threads", std::to_string(UsableCores(inventory)) + " for arithmetic");
  std::string memory = FormatBytes(UsableMemory(inventory));
  if (inventory.memory_limit && *inventory.memory_limit < inventory.memory_bytes) {
    memory += " by cgroup, of " + FormatBytes(inventory.memory_bytes);
  }
  text += Row("Memory", memory);
  if (!inventory.driver_version.empty()) {
    text += Row("Driver", "NVIDIA " + inventory.driver_version + (inventory.mps ? ", MPS" : ""));
  }
  for (const Gpu& gpu : inventory.gpus) {
    text += Row("GPU " + std::to_string(gpu.index), GpuText(gpu));
    for (const MigSlice& slice : gpu.slices) {
      text += Row("", slice.name + ", " + FormatBytes(slice.memory_bytes) + ", " + slice.uuid);
    }
  }
  for (const std::string& note : inventory.notes) text += Row("Note", note);
  return text;
}

std::string RenderInventoryJson(const Inventory& inventory) {
  Json json = {{"usableCores", UsableCores(inventory)}, {"physicalCores", PhysicalCores(inventory)}};
  json["cpuQuota"] = inventory.cpu_quota ? Json(*inventory.cpu_quota) : Json();
  json["cpuModel"] = inventory.cpu_model;
  json["cpuFeatures"] = inventory.cpu_features;
  json["cpus"] = Json::array();
  for (const Cpu& cpu : inventory.cpus) {
    json["cpus"].push_back({{"id", cpu.id}, {"core", cpu.core}, {"node", cpu.node}});
  }
  json["memoryBytes"] = inventory.memory_bytes;
  json["memoryLimitBytes"] = inventory.memory_limit ? Json(*inventory.memory_limit) : Json();
  json["driverVersion"] = inventory.driver_version;
  json["mps"] = inventory.mps;
  json["gpus"] = Json::array();
  for (const Gpu& gpu : inventory.gpus) json["gpus"].push_back(GpuJson(gpu));
  json["notes"] = inventory.notes;
  return ToJson(json);
}

}  // namespace lockstep::placement
