#include "trainer/backend/cuda/dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "trainer/backend/cuda/gather.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/error.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr size_t kTargetBytes = 4;
static_assert(SizeOf(DataType::kInt32) == kTargetBytes && SizeOf(DataType::kFloat32) == kTargetBytes);
constexpr int kBatches = 2;  // that are valid at a time

size_t RowBytes(const DeviceDatasetOptions& options) {
  return static_cast<size_t>(options.features) * SizeOf(options.row_type);
}
size_t Padded(size_t bytes) { return RoundUp(bytes, kBufferAlignment); }

// Pinned memory that the device reads behind the host's back.
struct PinnedSlot {
  Buffer memory;
  CudaEvent read = MakeEvent(cudaEventDisableTiming | cudaEventBlockingSync);  // by the device

  void WaitUntilRead() { LOCKSTEP_CUDA(cudaEventSynchronize(read.get())); }
};

// What both kinds have: the batches themselves.
class Batches {
 public:
  Batches(const DeviceDatasetOptions& options, const KernelContext& context) : options_(options) {
    const auto n = static_cast<size_t>(options.max_batch);
    for (Batch& batch : batches_) {
      const size_t features = n * static_cast<size_t>(options.features);
      batch.inputs = Buffer(*context.allocator, features * SizeOf(options.input_type));
      batch.labels = Buffer(*context.allocator, n * kTargetBytes);
    }
  }

  void RequireRoomFor(size_t n) const {
    if (n <= static_cast<size_t>(options_.max_batch)) return;
    throw BadData("a batch of " + std::to_string(n) + " samples was asked for; the dataset was made for " +
                  std::to_string(options_.max_batch));
  }

  DeviceDataset::Loaded Fill(const void* rows, const void* targets, const uint32_t* samples, size_t n,
                             const KernelContext& context) {
    const Batch& batch = batches_[next_];
    next_ = (next_ + 1) % kBatches;
    Gather({.rows = rows,
            .targets = targets,
            .samples = samples,
            .n = static_cast<int64_t>(n),
            .features = options_.features,
            .row_type = options_.row_type,
            .input_type = options_.input_type,
            .scale = options_.scale,
            .labels_to_float = options_.target_type != options_.label_type,
            .inputs = batch.inputs.data(),
            .labels = batch.labels.data()},
           context);
    return {.inputs = batch.inputs.data(), .labels = batch.labels.data()};
  }

 private:
  struct Batch {
    Buffer inputs, labels;
  };
  const DeviceDatasetOptions options_;
  std::array<Batch, kBatches> batches_;
  size_t next_ = 0;
};

// All rows in device memory. What a batch brings along is its samples' numbers, which the kernel reads in
// pinned memory: a copy in front would take longer than that.
class ResidentDataset final : public DeviceDataset {
 public:
  ResidentDataset(const DeviceDatasetOptions& options, const KernelContext& context)
      : context_(context),
        batches_(options, context),
        rows_(*context.allocator, static_cast<size_t>(options.samples) * RowBytes(options)),
        targets_(*context.allocator, static_cast<size_t>(options.samples) * kTargetBytes) {
    for (PinnedSlot& slot : slots_) {
      slot.memory = Buffer(*context.pinned, static_cast<size_t>(options.max_batch) * sizeof(uint32_t));
    }
    const auto upload = [&](const Buffer& to, const void* from) {
      if (to.bytes() == 0) return;
      LOCKSTEP_CUDA(cudaMemcpyAsync(to.data(), from, to.bytes(), cudaMemcpyHostToDevice, context.stream));
    };
    upload(rows_, options.rows);
    upload(targets_, options.targets);
    LOCKSTEP_CUDA(cudaStreamSynchronize(context.stream));
  }

  ~ResidentDataset() override {
    for (PinnedSlot& slot : slots_) LOCKSTEP_CUDA_NOTHROW(cudaEventSynchronize(slot.read.get()));
  }

  bool resident() const override { return true; }

  Loaded Load(std::span<const uint32_t> samples) override {
    batches_.RequireRoomFor(samples.size());
    PinnedSlot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    slot.WaitUntilRead();
    std::copy(samples.begin(), samples.end(), slot.memory.as<uint32_t>());
    const Loaded loaded =
        batches_.Fill(rows_.data(), targets_.data(), slot.memory.as<uint32_t>(), samples.size(), context_);
    LOCKSTEP_CUDA(cudaEventRecord(slot.read.get(), context_.stream));
    return loaded;
  }

 private:
  const KernelContext context_;
  Batches batches_;
  Buffer rows_, targets_;
  std::array<PinnedSlot, 8> slots_;  // as many steps as the host may be ahead, and more
  size_t next_ = 0;
};

// Rows in host memory: those of a batch are gathered there as they are, copied by a stream of their own while
// the batch before is computed, and converted on the device.
class StreamedDataset final : public DeviceDataset {
 public:
  StreamedDataset(const DeviceDatasetOptions& options, const KernelContext& context)
      : options_(options),
        context_(context),
        batches_(options, context),
        rows_at_(Padded(static_cast<size_t>(options.max_batch) * kTargetBytes)),
        copies_(MakeStream(0)) {
    const size_t bytes = rows_at_ + static_cast<size_t>(options.max_batch) * RowBytes(options);
    for (Stage& stage : stages_) {
      stage.pinned.memory = Buffer(*context.pinned, bytes);
      stage.device = Buffer(*context.allocator, bytes);
      // The memory is there for the compute stream; from here on for the other one, too.
      LOCKSTEP_CUDA(cudaEventRecord(stage.converted.get(), context.stream));
    }
  }

  ~StreamedDataset() override {
    for (Stage& stage : stages_) LOCKSTEP_CUDA_NOTHROW(cudaEventSynchronize(stage.pinned.read.get()));
  }

  bool resident() const override { return false; }

  Loaded Load(std::span<const uint32_t> samples) override {
    batches_.RequireRoomFor(samples.size());
    Stage& stage = stages_[next_];
    next_ = (next_ + 1) % stages_.size();
    stage.pinned.WaitUntilRead();
    GatherOnHost(samples, stage.pinned.memory.as<std::byte>());
    LOCKSTEP_CUDA(cudaStreamWaitEvent(copies_.get(), stage.converted.get(), 0));
    LOCKSTEP_CUDA(cudaMemcpyAsync(stage.device.data(), stage.pinned.memory.data(),
                                  rows_at_ + samples.size() * RowBytes(options_), cudaMemcpyHostToDevice,
                                  copies_.get()));
    LOCKSTEP_CUDA(cudaEventRecord(stage.pinned.read.get(), copies_.get()));
    LOCKSTEP_CUDA(cudaStreamWaitEvent(context_.stream, stage.pinned.read.get(), 0));
    const auto* rows = stage.device.as<std::byte>() + rows_at_;
    const Loaded loaded = batches_.Fill(rows, stage.device.data(), nullptr, samples.size(), context_);
    LOCKSTEP_CUDA(cudaEventRecord(stage.converted.get(), context_.stream));
    return loaded;
  }

 private:
  // Targets first, because they are always as long.
  struct Stage {
    PinnedSlot pinned;
    Buffer device;
    CudaEvent converted = MakeEvent();
  };

  void GatherOnHost(std::span<const uint32_t> samples, std::byte* to) const {
    const size_t row_bytes = RowBytes(options_);
    const auto* rows = static_cast<const std::byte*>(options_.rows);
    const auto* targets = static_cast<const std::byte*>(options_.targets);
    for (size_t i = 0; i < samples.size(); ++i) {
      std::memcpy(to + i * kTargetBytes, targets + samples[i] * kTargetBytes, kTargetBytes);
      std::memcpy(to + rows_at_ + i * row_bytes, rows + samples[i] * row_bytes, row_bytes);
    }
  }

  const DeviceDatasetOptions options_;
  const KernelContext context_;
  Batches batches_;
  const size_t rows_at_;  // in a stage
  CudaStream copies_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
};

void Check(const DeviceDatasetOptions& options) {
  const bool rows = options.row_type == DataType::kUInt8 || options.row_type == DataType::kFloat32;
  const bool inputs = options.input_type == DataType::kFloat32 || options.input_type == DataType::kBFloat16;
  const bool labels = options.label_type == options.target_type || options.label_type == DataType::kFloat32;
  if (rows && inputs && labels) return;
  throw Unsupported("a dataset of " + std::string(DataTypeName(options.row_type)) + " with " +
                    std::string(DataTypeName(options.target_type)) + " targets does not become batches of " +
                    std::string(DataTypeName(options.input_type)) + " with " +
                    std::string(DataTypeName(options.label_type)) + " labels");
}

}  // namespace

std::unique_ptr<DeviceDataset> MakeDataset(const DeviceDatasetOptions& options, int64_t resident_bytes,
                                           const KernelContext& context) {
  Check(options);
  const auto bytes = options.samples * static_cast<int64_t>(RowBytes(options) + kTargetBytes);
  if (bytes <= resident_bytes) {
    try {
      return std::make_unique<ResidentDataset>(options, context);
    } catch (const OutOfMemory&) {
      // Then it is streamed, which takes less.
    }
  }
  return std::make_unique<StreamedDataset>(options, context);
}

}  // namespace lockstep::trainer::cuda
