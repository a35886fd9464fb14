#include "launcher/spec/roles.h"

#include <algorithm>
#include <charconv>

namespace lockstep::spec {

int ReplicasOf(const TrainingJob& job) {
  int replicas = 0;
  for (const Role& role : job.roles) replicas += role.replicas;
  return replicas;
}

Seat SeatOf(const TrainingJob& job, int replica) {
  Seat seat{.role = 0, .index = replica};
  for (const Role& role : job.roles) {
    if (seat.index < role.replicas) break;
    seat.index -= role.replicas;
    ++seat.role;
  }
  return seat;
}

int FirstReplicaOf(const TrainingJob& job, std::string_view name) {
  int first = 0;
  for (const Role& role : job.roles) {
    if (role.name == name) break;
    first += role.replicas;
  }
  return first;
}

bool EndsJob(const TrainingJob& job, std::string_view role) {
  if (role != "worker") return role == "chief";
  const bool has_chief =
      std::any_of(job.roles.begin(), job.roles.end(), [](const Role& each) { return each.name == "chief"; });
  return !has_chief || !RestartsAlone(job);
}

bool RestartsAlone(const TrainingJob& job) {
  return std::any_of(job.roles.begin(), job.roles.end(), [](const Role& role) { return role.name == "ps"; });
}

int TpuChipsOf(const Role& role) {
  if (role.devices.type != DeviceType::kTpu) return 0;
  int64_t chips = 1;
  const std::string& topology = role.devices.topology;
  for (size_t begin = 0; begin < topology.size();) {
    const size_t end = std::min(topology.find('x', begin), topology.size());
    int axis = 0;
    std::from_chars(topology.data() + begin, topology.data() + end, axis);
    chips *= axis;
    begin = end + 1;
  }
  return chips % role.replicas == 0 ? static_cast<int>(chips / role.replicas) : 0;
}

const Program* ProgramOf(const TrainingJob& job, const Role& role) {
  if (role.program) return &*role.program;
  return job.program ? &*job.program : nullptr;
}

}  // namespace lockstep::spec
