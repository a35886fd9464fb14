#include "launcher/pmix/fences.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

#include "common/contract/digest.h"

namespace lockstep::pmix {

namespace {

// A fence takes as long as its last rank does: MPI_Finalize is one. Said again and again who is missing.
constexpr auto kPatience = std::chrono::minutes(10);

std::string NameOf(const std::vector<int>& ranks) {
  if (ranks.empty()) return "all";
  std::string text;
  for (const int rank : ranks) text += std::to_string(rank) + ",";
  return contract::Digest(text);
}

}  // namespace

Fences::Fences(JobMap map, StoreLink& store) : map_(std::move(map)), store_(store) {}

Fences::~Fences() = default;

void Fences::Enter(const std::vector<int>& ranks, std::string contribution, Done done) {
  std::vector<size_t> machines;
  for (size_t machine = 0; machine < map_.machines.size(); ++machine) {
    const bool takes_part = ranks.empty() || std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
                              return map_.machine_of(rank) == machine;
                            });
    if (takes_part) machines.push_back(machine);
  }
  if (machines.size() < 2) return done(std::move(contribution));
  const std::lock_guard lock(mutex_);
  const std::string name = NameOf(ranks);
  Group& group = groups_[name];
  const std::string key = "pmix/fence/" + name + "/" + std::to_string(group.fences++);
  // (The one before is over for its ranks, which are these: its thread ends.)
  group.thread = std::jthread([this, key, machines, contribution = std::move(contribution),
                               done = std::move(done)] { done(Exchange(key, machines, contribution)); });
}

Result<std::string> Fences::Exchange(const std::string& key, const std::vector<size_t>& machines,
                                     const std::string& contribution) {
  const Result<contract::Store*> link = store_.Get();
  LOCKSTEP_RETURN_IF_ERROR(link.status());
  contract::Store& store = **link;
  const auto soon = [] { return contract::Store::Deadline::clock::now() + kPatience; };
  std::vector<std::string> keys;
  for (const size_t machine : machines) {
    keys.push_back(key + "/" + std::to_string(machine));
    if (machine == map_.self) LOCKSTEP_RETURN_IF_ERROR(store.Set(keys.back(), contribution, soon()));
  }
  for (Status status = store.Wait(keys, soon()); !status.ok(); status = store.Wait(keys, soon())) {
    if (status.code() != StatusCode::kDeadlineExceeded) return status;
    std::fprintf(stderr, "a fence of MPI's ranks still waits: %s\n", status.message().c_str());
  }
  std::string all;
  for (const std::string& each : keys) {
    const Result<std::string> value = store.Get(each, soon());
    LOCKSTEP_RETURN_IF_ERROR(value.status());
    all += *value;
  }
  return all;
}

}  // namespace lockstep::pmix
