#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/placement/memory_share.h"
#include "launcher/placement/render.h"
#include "launcher/placement/text_files.h"
#include "launcher/placement/yaml_text.h"
#include "launcher/spec/enums.h"

namespace lockstep::placement {
namespace {

using Json = nlohmann::ordered_json;

bool SpeaksOfSecret(std::string name) {
  constexpr std::array<std::string_view, 7> kWords = {"TOKEN", "SECRET",     "PASSW", "PASSPHRASE",
                                                      "KEY",   "CREDENTIAL", "AUTH"};
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

std::string PolicyName(spec::MemoryPolicy policy) {
  switch (policy) {
    case spec::MemoryPolicy::kGrowth:
      return "Growth";
    case spec::MemoryPolicy::kPreallocate:
      return "Preallocate";
    case spec::MemoryPolicy::kLimit:
      return "Limit";
    case spec::MemoryPolicy::kFraction:
      return "Fraction";
  }
  return "";
}

Json MemoryJson(const MemoryShare& memory) {
  Json json = {{"policy", PolicyName(memory.policy)}};
  if (memory.limit) json["limitBytes"] = *memory.limit;
  if (memory.fraction) json["fraction"] = *memory.fraction;
  json["enforce"] = memory.mps ? "MPS" : "None";
  return json;
}

Json EnvironmentJson(const ProcessPlan& process) {
  Json json = Json::object();
  for (const auto& [name, value] : process.changed) {
    if (const auto file = process.from_files.find(name); file != process.from_files.end()) {
      json[name] = "(from " + file->second + ")";
      continue;
    }
    const bool users = std::find(process.from_manifest.begin(), process.from_manifest.end(), name) !=
                       process.from_manifest.end();
    json[name] = users && SpeaksOfSecret(name) ? "(hidden)" : value;
  }
  return json;
}

Json ProcessJson(const ProcessPlan& process) {
  Json json = {{"rank", process.rank},
               {"localRank", process.local_rank},
               {"role", process.role},
               {"roleRank", process.role_rank},
               {"devices", process.devices.devices},
               {"cpus", process.devices.cpus.empty() ? "any" : FormatNumberList(process.devices.cpus)}};
  if (process.devices.numa_node >= 0) json["numaNode"] = process.devices.numa_node;
  json["threads"] = process.devices.threads;
  json["memory"] = MemoryJson(process.devices.memory);
  json["command"] = process.command;
  if (!process.working_directory.empty()) json["workingDirectory"] = process.working_directory;
  json["environment"] = EnvironmentJson(process);
  return json;
}

std::string Count(int count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

std::string RenderPlan(const Plan& plan, PlanFormat format, const std::string& device_map) {
  Json json = {{"worldSize", plan.world_size},
               {"physicalDevices", plan.physical_devices},
               {"logicalDevices", plan.logical_devices}};
  for (const Preparation& preparation : plan.prepare) {
    Json& prepare = json["prepare"].emplace_back(Json{{"command", preparation.command}});
    if (!preparation.working_directory.empty()) prepare["workingDirectory"] = preparation.working_directory;
  }
  if (!device_map.empty()) json["deviceMap"] = Json::parse(device_map, nullptr, /*allow_exceptions=*/false);
  json["processes"] = Json::array();
  for (const ProcessPlan& process : plan.processes) json["processes"].push_back(ProcessJson(process));
  json["notices"] = plan.notices;
  return format == PlanFormat::kYaml ? ToYaml(json) : ToJson(json);
}

std::string CountDevices(const Plan& plan) {
  const std::string noun(spec::Name(plan.type));
  return Count(plan.physical_devices, "physical " + noun) + ", " +
         Count(plan.logical_devices, "logical " + noun);
}

std::vector<std::string> DescribePlacement(const Plan& plan) {
  std::vector<std::string> lines;
  std::set<std::string> roles;
  for (const ProcessPlan& process : plan.processes) roles.insert(process.role);
  for (const ProcessPlan& process : plan.processes) {
    std::string line =
        "rank " + std::to_string(process.rank) + (roles.size() > 1 ? " (" + process.role + ")" : "") + " on ";
    for (size_t i = 0; i < process.devices.devices.size(); ++i) {
      line += (i == 0 ? "" : ", ") + process.devices.devices[i];
    }
    if (!process.devices.cpus.empty()) line += ", bound to CPUs " + FormatNumberList(process.devices.cpus);
    line += ", " + Count(process.devices.threads, "thread");
    if (process.devices.memory.limit) line += ", at most " + FormatBytes(*process.devices.memory.limit);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lockstep::placement
