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

// Joins a rank's streams with those of its peers: each has two events that the others' processes can wait
// for, used by turns. All calls are collective.
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
  trainer::cuda::CudaEvent mine_[2];
  std::vector<trainer::cuda::CudaEvent> opened_events_;
  std::vector<cudaEvent_t> events_[2];  // by turn, rank
  std::vector<OpenedMemory> opened_memory_;
  uint64_t meetings_ = 0;
};

}  // namespace lockstep::trainer::collectives::cuda
