#pragma once

#include <array>
#include <memory>
#include <vector>

#include "trainer/batch_feed.h"
#include "trainer/prefetcher.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {

class DeviceBackend;

// Images that are augmented: on a thread, ahead of the steps. For a device they are made in pinned memory and
// copied from there.
class AugmentedFeed final : public BatchFeed {
 public:
  explicit AugmentedFeed(const Options& options);

  Batch Load(data::Position at, std::span<const uint32_t> shard) override;
  Batch Load(data::Range samples) override;

 private:
  struct Memory {
    Buffer inputs, labels;
  };

  Memory Allocate(Allocator& allocator) const;
  // Sample `index` as row `row`: `write` puts it there as floats.
  template <typename Write>
  void PutRow(const Memory& memory, int64_t row, std::vector<float>& scratch, const Write& write) const;
  template <typename Samples>
  void PutLabels(const Memory& memory, const Samples& samples) const;
  void Prepare(data::Position at, size_t slot);
  // On the device: enqueues the copy of `samples` of them.
  Batch Send(const Memory& from, const Memory& to, int64_t samples);
  size_t InputBytes(int64_t samples) const;

  const Options options_;
  DeviceBackend* const device_;  // null on the CPU
  data::Sampler sampler_;        // the thread's, but for its const functions
  std::vector<float> scratch_;   // the thread's
  std::vector<Memory> slots_;
  Memory evaluation_;                // in host memory
  std::array<Memory, 3> on_device_;  // two for training, in turn, and one for evaluation
  size_t loads_ = 0;
  Prefetcher prefetcher_;  // last: its thread ends first
};

}  // namespace lockstep::trainer
