#include "trainer/shared_dataset.h"

#include <memory>
#include <string>
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
  std::string filled(int local_rank) const { return prefix + "filled/" + std::to_string(local_rank); }
  std::string prefix;
};

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
    if (world.local_size > 1) {
      ThrowUnless(store->Set(keys.size(), std::to_string(segment.size()), deadline));
      segment.Publish(*store, keys.segment(), deadline);
    }
  } else {
    const Result<std::string> size = store->Get(keys.size(), deadline);
    ThrowUnless(size.status());
    segment = SharedSegment::Attach(*store, keys.segment(), std::stoull(*size), deadline);
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

}  // namespace

SharedDataset::SharedDataset(const data::SourceOptions& options, const strategy::World& world, Store* store,
                             std::chrono::milliseconds timeout)
    : segment_(Load(options, world, store, std::chrono::steady_clock::now() + timeout)),
      view_(data::DatasetView::FromBlock(segment_.View<std::byte>(0, segment_.size()))) {}

}  // namespace lockstep::trainer
