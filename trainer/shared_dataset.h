#pragma once

#include <chrono>

#include "common/contract/store.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/data/dataset.h"
#include "trainer/data/source.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// The data set, in memory that the ranks of one machine share: local rank 0 opens the source and makes the
// memory; where the source is divisible every rank fills its slice.
class SharedDataset {
 public:
  // Collective over the ranks of a machine; `store` may be null when this one is alone. Throws BadData,
  // OutOfMemory, or RendezvousFailed when the others don't get so far within `timeout`.
  SharedDataset(const data::SourceOptions& options, const strategy::World& world, contract::Store* store,
                std::chrono::milliseconds timeout);

  const data::DatasetView& view() const { return view_; }

 private:
  collectives::SharedSegment segment_;
  data::DatasetView view_;
};

}  // namespace lockstep::trainer
