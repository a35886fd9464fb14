#include "trainer/backend/cuda/memory.h"

#include <cuda.h>

#include <optional>
#include <utility>

#include "trainer/backend/cuda/arena.h"
#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/cuda/recording.h"
#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

// As the driver's pools and the arena round.
size_t Rounded(size_t bytes) {
  return (bytes + Arena::kGranularity - 1) / Arena::kGranularity * Arena::kGranularity;
}

struct Free {
  size_t free = 0;
  size_t total = 0;
};
Free FreeMemory() {
  Free memory;
  LOCKSTEP_CUDA(cudaMemGetInfo(&memory.free, &memory.total));
  return memory;
}

std::string Remaining() {
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return "the device has " + std::to_string(free) + " bytes free of " + std::to_string(total);
}

// An allocation that the device may refuse; other failures are thrown.
bool Allocated(cudaError_t error, const char* operation, int line) {
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is told here, and not again by the next launch
    return false;
  }
  CheckCuda(error, operation, __FILE__, line);
  return true;
}

// Functions as an Allocator.
class CallingAllocator final : public Allocator {
 public:
  CallingAllocator(std::function<void*(size_t)> allocate, std::function<void(void*, size_t)> free)
      : allocate_(std::move(allocate)), free_(std::move(free)) {}
  void* Allocate(size_t bytes) override { return bytes == 0 ? nullptr : allocate_(bytes); }
  void Free(void* pointer, size_t bytes) noexcept override {
    if (pointer != nullptr) free_(pointer, bytes);
  }

 private:
  std::function<void*(size_t)> allocate_;
  std::function<void(void*, size_t)> free_;
};

// What the policies have in common.
class Memory : public DeviceMemory {
 public:
  Memory(const Options& options, size_t limit, size_t context)
      : stream_(options.stream),
        budget_(options.device, options.policy.policy, limit),
        ordinal_(options.policy.ordinal),
        context_(context),
        device_(options.device),
        pooled_([this](size_t bytes) { return Guarded([&] { return TakePooled(bytes); }); },
                [this](void* pointer, size_t bytes) { Later([=, this] { GivePooled(pointer, bytes); }); }),
        shareable_(
            [this](size_t bytes) { return Guarded([&] { return TakeShareable(bytes); }); },
            [this](void* pointer, size_t bytes) { Later([=, this] { GiveShareable(pointer, bytes); }); }),
        pinned_(
            [this](size_t bytes) { return Guarded([&] { return TakePinned(bytes); }); },
            [this](void* pointer, size_t) { Later([=] { LOCKSTEP_CUDA_NOTHROW(cudaFreeHost(pointer)); }); }) {
  }

  Allocator& pooled() override { return pooled_; }
  Allocator& shareable() override { return shareable_; }
  Allocator& pinned() override { return pinned_; }

  DeviceMemoryUse use() override {
    const std::scoped_lock lock(mutex_);
    return {.held = static_cast<int64_t>(Held()),
            .used = static_cast<int64_t>(budget_.used()),
            .peak = static_cast<int64_t>(budget_.peak()),
            .limit = static_cast<int64_t>(budget_.limit()),
            .context = static_cast<int64_t>(context_)};
  }

  void SetRecording(bool recording) override {
    const std::scoped_lock lock(mutex_);
    recording_ = recording;
    if (recording) return;
    for (const auto& free : later_) free();
    later_.clear();
  }

 protected:
  // With mutex_ held.
  virtual void* TakePooled(size_t bytes) = 0;
  virtual void GivePooled(void* pointer, size_t bytes) noexcept = 0;
  virtual void* TakeShareable(size_t bytes) = 0;
  virtual void GiveShareable(void* pointer, size_t bytes) noexcept = 0;
  virtual size_t Held() = 0;

  cudaStream_t stream_;
  Budget budget_;

 private:
  template <typename Take>
  void* Guarded(const Take& take) {
    const std::scoped_lock lock(mutex_);
    if (recording_) throw NotRecordable("memory is allocated");
    UseDevice(ordinal_);
    return take();
  }
  template <typename Give>
  void Later(Give give) noexcept {
    const std::scoped_lock lock(mutex_);
    if (recording_) {
      later_.emplace_back(give);
    } else {
      LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_));
      give();
    }
  }
  void* TakePinned(size_t bytes) {
    void* pointer = nullptr;
    if (Allocated(cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                  "cudaHostAlloc", __LINE__)) {
      return pointer;
    }
    throw OutOfMemory(device_ + ": " + std::to_string(bytes) + " bytes of pinned host memory cannot be had");
  }

  std::mutex mutex_;
  int ordinal_;
  size_t context_;
  std::string device_;
  bool recording_ = false;
  std::vector<std::function<void()>> later_;
  CallingAllocator pooled_, shareable_, pinned_;
};

class PoolMemory final : public Memory {
 public:
  PoolMemory(const Options& options, size_t limit, size_t context) : Memory(options, limit, context) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    LOCKSTEP_CUDA(cudaGetDevice(&properties.location.id));
    LOCKSTEP_CUDA(cudaMemPoolCreate(pool_.Receive(), &properties));
    uint64_t never = UINT64_MAX;
    LOCKSTEP_CUDA(cudaMemPoolSetAttribute(pool_.get(), cudaMemPoolAttrReleaseThreshold, &never));
  }

 private:
  void* TakePooled(size_t bytes) override {
    budget_.Take(Rounded(bytes));
    void* pointer = nullptr;
    if (!TryPool(&pointer, bytes) && !(Trim(0), TryPool(&pointer, bytes))) {
      budget_.Give(Rounded(bytes));
      budget_.Refuse(bytes, Remaining());
    }
    // The pool takes from the device in larger pieces, and keeps what was freed: not beyond the limit.
    if (budget_.limit() > 0 && Held() > budget_.limit()) Trim(budget_.limit() - shared_);
    return pointer;
  }

  void GivePooled(void* pointer, size_t bytes) noexcept override {
    LOCKSTEP_CUDA_NOTHROW(cudaFreeAsync(pointer, stream_));
    budget_.Give(Rounded(bytes));
  }

  void* TakeShareable(size_t bytes) override {
    budget_.Take(Rounded(bytes));
    void* pointer = nullptr;
    if (!TryShared(&pointer, bytes) && !(Trim(0), TryShared(&pointer, bytes))) {
      budget_.Give(Rounded(bytes));
      budget_.Refuse(bytes, Remaining());
    }
    shared_ += Rounded(bytes);
    return pointer;
  }

  void GiveShareable(void* pointer, size_t bytes) noexcept override {
    LOCKSTEP_CUDA_NOTHROW(cudaFree(pointer));  // waits for the device
    shared_ -= Rounded(bytes);
    budget_.Give(Rounded(bytes));
  }

  size_t Held() override {
    uint64_t reserved = 0;
    LOCKSTEP_CUDA(cudaMemPoolGetAttribute(pool_.get(), cudaMemPoolAttrReservedMemCurrent, &reserved));
    return reserved + shared_;
  }

  bool TryPool(void** pointer, size_t bytes) {
    return Allocated(cudaMallocFromPoolAsync(pointer, bytes, pool_.get(), stream_), "cudaMallocFromPoolAsync",
                     __LINE__);
  }
  bool TryShared(void** pointer, size_t bytes) {
    return Allocated(cudaMalloc(pointer, bytes), "cudaMalloc", __LINE__);
  }
  // Memory that was freed is given back once the stream has come past.
  void Trim(size_t keep) {
    LOCKSTEP_CUDA(cudaStreamSynchronize(stream_));
    LOCKSTEP_CUDA(cudaMemPoolTrimTo(pool_.get(), keep));
  }

  CudaMemoryPool pool_;
  size_t shared_ = 0;  // of cudaMalloc
};

class ArenaMemory final : public Memory {
 public:
  ArenaMemory(const Options& options, size_t limit, size_t context)
      : Memory(options, limit, context), arena_(limit) {
    if (!Allocated(cudaMalloc(base_.Receive(), limit), "cudaMalloc", __LINE__)) {
      budget_.Refuse(limit, Remaining());
    }
  }

 private:
  struct Traits {
    using Handle = void*;
    static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaFree(handle)); }
  };

  // Freed memory is handed out again at once: on the stream the old work comes before the new.
  void* TakePooled(size_t bytes) override {
    budget_.Take(Rounded(bytes));
    const std::optional<size_t> offset = arena_.Take(bytes);
    if (!offset) {
      budget_.Give(Rounded(bytes));
      budget_.Refuse(bytes, "the largest free piece has " + std::to_string(arena_.largest_free()));
    }
    return static_cast<std::byte*>(base_.get()) + *offset;
  }
  void GivePooled(void* pointer, size_t bytes) noexcept override {
    arena_.Give(static_cast<size_t>(static_cast<std::byte*>(pointer) - static_cast<std::byte*>(base_.get())));
    budget_.Give(Rounded(bytes));
  }
  void* TakeShareable(size_t bytes) override { return TakePooled(bytes); }
  void GiveShareable(void* pointer, size_t bytes) noexcept override { GivePooled(pointer, bytes); }
  size_t Held() override { return arena_.bytes(); }

  UniqueHandle<Traits> base_;
  Arena arena_;
};

}  // namespace

std::unique_ptr<DeviceMemory> DeviceMemory::Make(const Options& options) {
  UseDevice(options.policy.ordinal);
  const Free memory = FreeMemory();
  const size_t limit = LimitOf(options.policy, memory.total, memory.free);
  const size_t context = memory.total - memory.free;
  if (options.policy.policy == MemoryPolicy::kPreallocate) {
    return std::make_unique<ArenaMemory>(options, limit, context);
  }
  return std::make_unique<PoolMemory>(options, limit, context);
}

// The runtime has no way to ask where an allocation begins; the driver's is asked for by name, because the
// library must load where there is no driver.
MemoryToShare ShareMemory(void* pointer) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  LOCKSTEP_CUDA(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, CUDART_VERSION,
                                                 cudaEnableDefault, &found));
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  const auto range = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t*, CUdeviceptr)>(function);
  if (found != cudaDriverEntryPointSuccess || range(&base, &bytes, address) != CUDA_SUCCESS) {
    throw DeviceLost("cuMemGetAddressRange: the driver does not know where shared memory begins");
  }
  MemoryToShare shared{.offset = static_cast<size_t>(address - base)};
  LOCKSTEP_CUDA(cudaIpcGetMemHandle(&shared.allocation, reinterpret_cast<void*>(base)));
  return shared;
}

}  // namespace lockstep::trainer::cuda
