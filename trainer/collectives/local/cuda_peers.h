#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backend/cuda/handles.h"
#include "trainer/collectives/local/local_group.h"

// What the processes of one machine need of one another to work in each other's device memory.
namespace lockstep::trainer::collectives::cuda {

struct OpenedMemoryTraits {
  using Handle = void*;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaIpcCloseMemHandle(handle)); }
};
using OpenedMemory = trainer::cuda::UniqueHandle<OpenedMemoryTraits>;

// Shared memory that the device copies to and from by itself; other ranks may be threads of this process. The
// handle lets go of it.
struct PinnedSegmentTraits {
  using Handle = void*;
  static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cudaHostUnregister(handle)); }
};
using PinnedSegment = trainer::cuda::UniqueHandle<PinnedSegmentTraits>;
PinnedSegment Pin(const SharedSegment& segment);

// Events of each rank, for which the streams of all can wait.
class SharedEvents {
 public:
  // Collective: `count` of every rank, on its current device. `name`: another for each in a group. Throws as
  // LocalGroup::CreateSegment does, and DeviceLost.
  SharedEvents(LocalGroup& group, std::string_view name, size_t count, Deadline deadline);
  // A rank's own are to be recorded, the others' to be waited for. A wait is for the latest record before it.
  cudaEvent_t of(int rank, size_t index) const { return events_[static_cast<size_t>(rank) * count_ + index]; }

 private:
  size_t count_;
  std::vector<trainer::cuda::CudaEvent> owned_;  // made or opened here
  std::vector<cudaEvent_t> events_;              // by rank, index
};

// Joins a rank's streams with those of its peers, and opens their memory. All calls are collective.
class Peers {
 public:
  // The group outlives it. Throws as LocalGroup::CreateSegment does, and DeviceLost.
  Peers(LocalGroup& group, int device, Deadline deadline);
  ~Peers();

  // Work that this rank enqueues on `stream` from now on runs after all that any rank had enqueued on the
  // stream it gives, before it came here. The host waits, at most until the deadline, until the others' hosts
  // have come here; nobody's device is waited for.
  void Meet(std::string_view operation, cudaStream_t stream, Deadline deadline);

  // Where every rank's memory `mine` is for this one, by rank. Empty when some rank cannot reach some
  // other's; `why` then says which. Memory of `shareable()`; stays open until Close.
  std::vector<void*> Open(void* mine, Deadline deadline, std::string* why);
  // Nobody frees what others have open: returns when all have closed.
  void Close(Deadline deadline);

 private:
  struct Member;
  void* OpenOne(const Member& peer, cudaError_t* error);

  LocalGroup& group_;
  int device_;
  SharedSegment segment_;
  Member* members_ = nullptr;
  SharedEvents events_;  // two of each rank, by turns
  std::vector<OpenedMemory> opened_memory_;
  uint64_t meetings_ = 0;
};

}  // namespace lockstep::trainer::collectives::cuda
