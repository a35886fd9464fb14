#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trainer/backend/backend.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/model/model.h"

namespace lockstep::trainer {

// Brings what the model reads of samples (a part of one may need no inputs, or no labels) to where it does:
// gathered into host memory for the CPU, by the device itself for a device; where images are augmented,
// prepared ahead by a thread, on the CPU in both cases.
class BatchFeed {
 public:
  struct Options {
    const data::DatasetView& dataset;
    const Model& model;
    Backend& backend;
    const data::Augmentation* augmentation =
        nullptr;  // null: none, and the rest but the capacity is not used
    data::Sampler::Options sampler;
    int64_t epochs = 0;
    int share = 0;  // which of `shares` of a batch this rank takes
    int shares = 1;
    int in_flight = 1;                 // batches that a device may not have read yet when the next is loaded
    int64_t capacity = 0;              // samples in a batch of this rank, at most
    trace::Recorder* trace = nullptr;  // gets what is prepared ahead; null: nobody asked
  };
  // What the options point to outlives the feed. Throws OutOfMemory.
  static std::unique_ptr<BatchFeed> Make(const Options& options);

  virtual ~BatchFeed() = default;

  struct Batch {
    const void* inputs = nullptr;
    const void* labels = nullptr;
  };
  // To train: `shard` is this rank's of the batch at a position. What comes back holds, for the CPU, until
  // the next Load; for a device see DeviceDataset::Load.
  virtual Batch Load(data::Position at, std::span<const uint32_t> shard) = 0;
  // To evaluate: samples by number, at most the capacity.
  virtual Batch Load(data::Range samples) = 0;
};

}  // namespace lockstep::trainer
