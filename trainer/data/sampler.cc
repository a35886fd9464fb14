#include "trainer/data/sampler.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "trainer/data/random.h"
#include "trainer/error.h"

namespace lockstep::trainer::data {
namespace {

constexpr uint64_t kShuffleStream =
    0x73687566;  // keeps the order of samples apart from other uses of the seed

// Fisher–Yates (Knuth, TAOCP vol. 2, 3.4.2, algorithm P).
void Shuffle(std::vector<uint32_t>& order, uint64_t seed, int64_t epoch) {
  KeyedRandom random(seed, kShuffleStream, static_cast<uint64_t>(epoch));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
}

}  // namespace

Sampler::Sampler(const Options& options) : options_(options) {
  if (options.samples < 1 || options.samples > std::numeric_limits<uint32_t>::max()) {
    throw BadData("sampler: " + std::to_string(options.samples) +
                  " training samples: there must be 1 to 4,294,967,295");
  }
  if (options.batch_size < 1) {
    throw BadData("sampler: a batch of " + std::to_string(options.batch_size) +
                  ": it must have a sample at least");
  }
}

int64_t Sampler::batches_per_epoch() const {
  return options_.samples / options_.batch_size + (options_.samples % options_.batch_size != 0 ? 1 : 0);
}

Range Sampler::BatchAt(Position position) const {
  if (position.epoch < 0 || position.offset < 0 || position.offset >= options_.samples) {
    throw BadData("sampler: epoch " + std::to_string(position.epoch) + ", sample " +
                  std::to_string(position.offset) + " is outside the " + std::to_string(options_.samples) +
                  " training samples");
  }
  return {position.offset, std::min(options_.batch_size, options_.samples - position.offset)};
}

Position Sampler::Next(Position position) const {
  const int64_t end = BatchAt(position).end();
  return end == options_.samples ? Position{position.epoch + 1, 0} : Position{position.epoch, end};
}

std::span<const uint32_t> Sampler::Shard(Position position, int64_t rank, int64_t world) {
  const Range shard = ShardOf(BatchAt(position), rank, world);
  return Order(position.epoch).subspan(shard.first, shard.count);
}

std::span<const uint32_t> Sampler::Order(int64_t epoch) {
  if (order_.empty() || (epoch_ != epoch && options_.shuffle)) {
    order_.resize(static_cast<size_t>(options_.samples));
    std::iota(order_.begin(), order_.end(), uint32_t{0});
    if (options_.shuffle) Shuffle(order_, options_.seed, epoch);
    epoch_ = epoch;
  }
  return order_;
}

}  // namespace lockstep::trainer::data
