#include "trainer/shared_dataset.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

using collectives::SharedSegment;
using contract::Store;

void ThrowUnless(const Status& status) {
  if (!status.ok()) throw RendezvousFailed("data set: " + status.message());
}

// The keys of one machine.
struct Keys {
  explicit Keys(int machine) : prefix("data/" + std::to_string(machine) + "/") {}
  std::string segment() const { return prefix + "segment"; }
  std::string size() const { return prefix + "size"; }
  std::string has(int local_rank) const { return prefix + "has/" + std::to_string(local_rank); }
  std::string filled(int local_rank) const { return prefix + "filled/" + std::to_string(local_rank); }
  std::string prefix;
};

void Publish(const SharedSegment& segment, const Keys& keys, Store* store, Store::Deadline deadline) {
  ThrowUnless(store->Set(keys.size(), std::to_string(segment.size()), deadline));
  segment.Publish(*store, keys.segment(), deadline);
}

SharedSegment Attach(const Keys& keys, Store* store, Store::Deadline deadline) {
  const Result<std::string> size = store->Get(keys.size(), deadline);
  ThrowUnless(size.status());
  return SharedSegment::Attach(*store, keys.segment(), std::stoull(*size), deadline);
}

// The first of the machine that has it; local_size: nobody.
int FindOwner(const strategy::World& world, bool has, Store* store, Store::Deadline deadline) {
  const Keys keys(world.group_rank);
  ThrowUnless(store->Set(keys.has(world.local_rank), has ? "1" : "", deadline));
  for (int rank = 0; rank < world.local_size; ++rank) {
    const Result<std::string> its = store->Get(keys.has(rank), deadline);
    ThrowUnless(its.status());
    if (!its->empty()) return rank;
  }
  return world.local_size;
}

SharedSegment Load(const data::SourceOptions& options, const strategy::World& world, Store* store,
                   Store::Deadline deadline) {
  const Keys keys(world.group_rank);
  const bool first = world.local_rank == 0;
  const bool divisible = options.format == data::Format::kDigits;
  std::unique_ptr<data::Source> source;
  if (first || divisible) source = data::Source::Open(options);

  SharedSegment segment;
  if (first) {
    segment = SharedSegment::Create("lockstep-data", source->plan().block_bytes());
    if (world.local_size > 1) Publish(segment, keys, store, deadline);
  } else {
    segment = Attach(keys, store, deadline);
  }

  if (source != nullptr)
    source->LoadSlice(segment.View<std::byte>(0, segment.size()), world.local_rank, world.local_size);
  if (world.local_size == 1) return segment;

  ThrowUnless(store->Set(keys.filled(world.local_rank), "", deadline));
  std::vector<std::string> all;
  for (int rank = 0; rank < world.local_size; ++rank) all.push_back(keys.filled(rank));
  ThrowUnless(store->Wait(all, deadline));
  return segment;
}

SharedSegment Keep(const data::SourceOptions& options, const strategy::World& world, Store* store,
                   Store::Deadline deadline, const SharedSegment& had) {
  const bool has = static_cast<bool>(had);
  const Keys keys(world.group_rank);
  int owner = has ? 0 : 1;  // where this rank is alone
  if (world.local_size > 1) owner = FindOwner(world, has, store, deadline);
  if (owner == world.local_size) return Load(options, world, store, deadline);
  if (owner == world.local_rank && world.local_size > 1) Publish(had, keys, store, deadline);
  return has ? had : Attach(keys, store, deadline);
}

}  // namespace

SharedDataset::SharedDataset(const data::SourceOptions& options, const strategy::World& world, Store* store,
                             std::chrono::milliseconds timeout)
    : SharedDataset(Load(options, world, store, std::chrono::steady_clock::now() + timeout)) {}

SharedDataset::SharedDataset(const data::SourceOptions& options, const strategy::World& world, Store* store,
                             std::chrono::milliseconds timeout, const SharedDataset* had)
    : SharedDataset(Keep(options, world, store, std::chrono::steady_clock::now() + timeout,
                         had == nullptr ? SharedSegment() : had->segment_)) {}

SharedDataset::SharedDataset(SharedSegment segment)
    : segment_(std::move(segment)),
      view_(data::DatasetView::FromBlock(segment_.View<std::byte>(0, segment_.size()))) {}

}  // namespace lockstep::trainer
