#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "trainer/data/range.h"
#include "trainer/tensor/shape.h"

// trainer/data/ turns files, or the generator of digits, into batches:
//   source.h   opens IDX, CIFAR-10, CSV or generated digits and writes them into one block of memory;
//   dataset.h  (here) views such a block and gathers batches from it;
//   sampler.h  says which samples make which batch of which rank.
// A block is position-independent and self-describing, so that the ranks of one machine can share a single
// copy: one of them (or all, where the source is divisible) fills shared memory, the others map it and view
// it. Everything is in memory and Gather is quick; what is done to images beforehand (augmentation.h) is not,
// and goes on a thread of trainer/prefetcher.h. Wrong data throws BadData.
namespace lockstep::trainer::data {

enum class SampleType : uint32_t { kUint8 = 1, kFloat32 = 2 };
enum class TargetType : uint32_t {
  kLabel = 1,  // one int32 in [0, classes)
  kValue = 2,  // one float32
};

// What a block holds, and how large it is. Samples are numbered through: training (its last `validation` ones
// set aside for validation), then test.
struct DatasetPlan {
  SampleType sample_type = SampleType::kUint8;
  TargetType target_type = TargetType::kLabel;
  float scale = 1.0f;    // a stored value times this is the feature
  int64_t features = 0;  // in a sample
  // Of images, whose features are [height, width, channels], the last contiguous; 0 of anything else.
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t classes = 0;   // labels are below; 0 for values
  int64_t training = 0;  // without those for validation
  int64_t validation = 0;
  int64_t test = 0;

  int64_t samples() const { return training + validation + test; }
  Shape sample_shape() const;   // [height, width, channels] of images, else [features]
  size_t sample_bytes() const;  // of one sample
  // Offsets from the block's start, and its whole size. Throws BadData when the sizes are nonsense or do not
  // fit.
  size_t sample_offset() const;
  size_t target_offset() const;
  size_t block_bytes() const;
};

// A view of a block; copies freely; the memory must outlive it. Safe from every thread.
class DatasetView {
 public:
  // Throws BadData when `block` is not a finished block or is shorter than it says. `block` must be aligned
  // to 64.
  static DatasetView FromBlock(std::span<const std::byte> block);

  const DatasetPlan& plan() const { return plan_; }
  int64_t features() const { return plan_.features; }
  Shape sample_shape() const { return plan_.sample_shape(); }
  int64_t classes() const { return plan_.classes; }

  // As ranges of sample numbers; possibly empty (validation, test).
  Range training() const { return {0, plan_.training}; }
  Range validation() const { return {plan_.training, plan_.validation}; }
  Range test() const { return {plan_.training + plan_.validation, plan_.test}; }

  // Writes the samples `indices` as rows of out[indices.size(), features], row-major, scaled. Bitwise the
  // same on every processor. Indices must be below plan().samples() (not checked: this is the inner loop).
  void Gather(std::span<const uint32_t> indices, float* out) const;
  void Gather(Range samples, float* out) const;
  // The same, rounded to the nearest bfloat16 (its 16 bits), ties to even.
  void GatherBfloat16(std::span<const uint32_t> indices, uint16_t* out) const;
  void GatherBfloat16(Range samples, uint16_t* out) const;

  // Only when the targets are labels.
  void GatherLabels(std::span<const uint32_t> indices, int32_t* out) const;
  void GatherLabels(Range samples, int32_t* out) const;
  // Values; labels are converted.
  void GatherValues(std::span<const uint32_t> indices, float* out) const;
  void GatherValues(Range samples, float* out) const;

  // The stored bytes of a sample, unscaled.
  std::span<const std::byte> RawSample(int64_t index) const;
  // All of them, by sample number, and all targets, int32 or float32.
  const std::byte* raw_samples() const { return samples_; }
  const std::byte* raw_targets() const { return targets_; }

 private:
  DatasetView(const DatasetPlan& plan, const std::byte* samples, const std::byte* targets)
      : plan_(plan), samples_(samples), targets_(targets) {}
  float ValueOf(int64_t index) const;

  DatasetPlan plan_;
  const std::byte* samples_;
  const std::byte* targets_;
};

// A block in this process's own memory, for one that shares it with nobody.
class OwnedBlock {
 public:
  explicit OwnedBlock(size_t bytes);
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;  // aligned to 64
  size_t size_;
};

}  // namespace lockstep::trainer::data
