#pragma once

#include <chrono>

#include "common/contract/store.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/data/dataset.h"
#include "trainer/data/source.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// The data set, in memory that the ranks of one machine share: local rank 0 opens the source and makes the
// memory; where the source is divisible every rank fills its slice. It outlives its generation: in the next
// one those who have it keep it, and one of them hands it to those who have not.
class SharedDataset {
 public:
  // Collective over the ranks of a machine; `store` may be null when this one is alone. Throws BadData,
  // OutOfMemory, or RendezvousFailed when the others don't get so far within `timeout`.
  SharedDataset(const data::SourceOptions& options, const strategy::World& world, contract::Store* store,
                std::chrono::milliseconds timeout);
  // In a later generation; `had` is this process's of the one before, null if there was none. Of the same
  // options, and with the same failures.
  SharedDataset(const data::SourceOptions& options, const strategy::World& world, contract::Store* store,
                std::chrono::milliseconds timeout, const SharedDataset* had);

  const data::DatasetView& view() const { return view_; }

 private:
  explicit SharedDataset(collectives::SharedSegment segment);

  collectives::SharedSegment segment_;
  data::DatasetView view_;
};

}  // namespace lockstep::trainer
