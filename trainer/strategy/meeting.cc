#include "trainer/strategy/meeting.h"

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/error.h"
#include "trainer/strategy/fingerprint.h"

namespace lockstep::trainer::strategy {

std::unique_ptr<collectives::LocalGroup> JoinMachine(const Options& options) {
  const World& world = options.world;
  return collectives::LocalGroup::Join({.rank = world.local_rank,
                                        .size = world.local_size,
                                        .first_rank = world.rank - world.local_rank,
                                        .store = options.store,
                                        .key = "machine/" + std::to_string(world.group_rank),
                                        .threads = options.threads,
                                        .deadline = std::chrono::steady_clock::now() + options.setup_timeout,
                                        .segments = options.segments});
}

void CompareModels(const Options& options, const ParameterLayout& layout, int slots) {
  const World& world = options.world;
  if (world.size == 1) return;
  const auto deadline = std::chrono::steady_clock::now() + options.setup_timeout;
  const auto check = [](const Status& status) {
    if (!status.ok()) throw RendezvousFailed("comparing the models: " + status.message());
  };
  const std::string mine = std::to_string(Fingerprint(layout, slots));
  std::vector<std::string> keys;
  for (int r = 0; r < world.size; ++r) keys.push_back("model/" + std::to_string(r));
  check(options.store->Set(keys[static_cast<size_t>(world.rank)], mine, deadline));
  check(options.store->Wait(keys, deadline));
  for (int r = 0; r < world.size; ++r) {
    const Result<std::string> theirs = options.store->Get(keys[static_cast<size_t>(r)], deadline);
    check(theirs.status());
    if (*theirs == mine) continue;
    throw BadModel("ranks " + std::to_string(world.rank) + " and " + std::to_string(r) +
                   " lay out different parameters; all need the same model and optimizer, and machines with "
                   "the same kind of processor");
  }
}

void BroadcastOnMachine(collectives::LocalGroup& group, uint64_t number, std::span<std::byte> data, bool mine,
                        const std::function<void(std::span<std::byte>)>& between,
                        collectives::Deadline deadline) {
  const auto segment = group.CreateSegment("broadcast/" + std::to_string(number), data.size(), deadline,
                                           /*resident=*/false);
  const std::span<std::byte> all = segment.View<std::byte>(0, data.size());
  if (mine) std::copy(data.begin(), data.end(), all.begin());
  between(all);
  group.Barrier("handing the state on", deadline);
  if (!mine) std::copy(all.begin(), all.end(), data.begin());
}

}  // namespace lockstep::trainer::strategy
