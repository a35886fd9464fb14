#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

enum class Side { kDevice, kPinned, kPageable };

// One end of a copy, as it is when the copy is enqueued.
struct End {
  Side side = Side::kPageable;
  bool in_range = true;
};

End Look(const void* pointer, size_t bytes) {
  const MemoryPlace place = FindAllocated(pointer);
  if (place.kind == MemoryKind::kNone) return {};
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(pointer) - static_cast<const std::byte*>(place.base));
  return {.side = place.kind == MemoryKind::kPinned ? Side::kPinned : Side::kDevice,
          .in_range = offset + bytes <= place.bytes};
}

bool Fits(cudaMemcpyKind kind, Side to, Side from) {
  const bool to_device = to == Side::kDevice;
  const bool from_device = from == Side::kDevice;
  switch (kind) {
    case cudaMemcpyDefault:
      return true;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
  }
  return false;
}

// When the work runs: whether the memory is still, or already, there.
bool There(Side side, const void* pointer, size_t bytes, const char* what) {
  if (side == Side::kPageable || Reachable(pointer, bytes)) return true;
  Fault(cudaErrorIllegalAddress,
        std::string(what) + ": memory that is freed, or that another stream has yet to allocate");
  return false;
}

bool IsCapturing(cudaStream_t stream) {
  CUstream_st* resolved = Resolve(stream);
  if (resolved == nullptr) return false;
  const std::scoped_lock lock(CaptureMutex());
  return Capturing(resolved);
}

}  // namespace
}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (bytes == 0) return cudaSuccess;
  const End target = Look(to, bytes);
  const End source = Look(from, bytes);
  if (!Fits(kind, target.side, source.side)) return Return(cudaErrorInvalidMemcpyDirection);
  if (!target.in_range || !source.in_range) return Return(cudaErrorInvalidValue);
  const bool capturing = IsCapturing(stream);
  // Pageable memory is read through a buffer before the call returns, and written before it returns.
  std::shared_ptr<std::vector<std::byte>> staged;
  if (source.side == Side::kPageable && !capturing) {
    const auto* bytes_of = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(bytes_of, bytes_of + bytes);
  }
  const cudaError_t error = Enqueue(stream, "cudaMemcpyAsync", [=] {
    if (!There(target.side, to, bytes, "the target of a copy") ||
        !There(source.side, from, bytes, "the source of a copy")) {
      return;
    }
    std::memmove(to, staged != nullptr ? staged->data() : from, bytes);
  });
  if (error != cudaSuccess || target.side != Side::kPageable || capturing) return Return(error);
  return Return(WaitForStream(Resolve(stream)));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return Return(WaitForStream(Resolve(nullptr)));
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (bytes == 0) return cudaSuccess;
  const End target = Look(to, bytes);
  if (target.side == Side::kPageable || !target.in_range) return Return(cudaErrorInvalidValue);
  return Return(Enqueue(stream, "cudaMemsetAsync", [=] {
    if (There(target.side, to, bytes, "cudaMemsetAsync")) std::memset(to, value, bytes);
  }));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
