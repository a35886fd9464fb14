#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trainer/backend/backend.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"

namespace lockstep::trainer {

// Brings samples to where the model reads them: gathered into host memory for the CPU, by the device itself
// for a device.
class BatchFeed {
 public:
  virtual ~BatchFeed() = default;

  struct Batch {
    const void* inputs = nullptr;
    const void* labels = nullptr;
  };
  // Samples by number; at most the feed's capacity. What comes back holds, for the CPU, until the next Load;
  // for a device see DeviceDataset::Load.
  virtual Batch Load(std::span<const uint32_t> samples) = 0;
  virtual Batch Load(data::Range samples) = 0;
};

// For batches of at most `capacity` samples. Model, data set and backend outlive it. Throws OutOfMemory.
std::unique_ptr<BatchFeed> MakeBatchFeed(const data::DatasetView& dataset, const Model& model,
                                         Backend& backend, int64_t capacity);

}  // namespace lockstep::trainer
