#include "launcher/pmix/job_map.h"

#include <nlohmann/json.hpp>
#include <numeric>

namespace lockstep::pmix {

namespace {

constexpr size_t kMaxNameSpace = 255;  // PMIX_MAX_NSLEN

}  // namespace

int JobMap::size() const { return std::accumulate(machines.begin(), machines.end(), 0); }

int JobMap::first_rank(size_t machine) const {
  return std::accumulate(machines.begin(), machines.begin() + static_cast<std::ptrdiff_t>(machine), 0);
}

size_t JobMap::machine_of(int rank) const {
  size_t machine = 0;
  for (int end = machines[0]; rank >= end; end += machines[machine]) ++machine;
  return machine;
}

Result<JobMap> ParseJobMap(std::string_view text) {
  JobMap map;
  try {
    const auto json = nlohmann::json::parse(text);
    map.name_space = json.at("nameSpace").get<std::string>();
    map.folder = json.at("folder").get<std::string>();
    map.machines = json.at("machines").get<std::vector<int>>();
    map.self = json.at("self").get<size_t>();
    map.horovod = json.value("horovod", false);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(std::string("the map of the job: ") + error.what());
  }
  if (map.name_space.empty() || map.name_space.size() > kMaxNameSpace) {
    return InvalidArgument("the map of the job: nameSpace has " + std::to_string(map.name_space.size()) +
                           " bytes, 1 to " + std::to_string(kMaxNameSpace) + " are allowed");
  }
  for (const int ranks : map.machines) {
    if (ranks < 1)
      return InvalidArgument("the map of the job: a machine of " + std::to_string(ranks) + " ranks");
  }
  if (map.self >= map.machines.size()) {
    return InvalidArgument("the map of the job: self is " + std::to_string(map.self) + " of " +
                           std::to_string(map.machines.size()) + " machines");
  }
  return map;
}

std::string FormatJobMap(const JobMap& map) {
  return nlohmann::json{{"nameSpace", map.name_space},
                        {"folder", map.folder},
                        {"machines", map.machines},
                        {"self", map.self},
                        {"horovod", map.horovod}}
      .dump();
}

}  // namespace lockstep::pmix
