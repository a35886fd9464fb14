#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/contract/store.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/device_backend.h"
#include "trainer/collectives/communicator.h"

// Sums over ranks whose buffers lie in the memory of GPUs. nccl/ carries them over NCCL, local/cuda_* over
// peer access between the processes of one machine (CUDA IPC). Both are part of liblockstep-cuda.so.
namespace lockstep::trainer::collectives {

class DeviceLink;
struct DeviceLinkOptions;
class InProcessSegments;

// How gradients of several devices are summed; as TensorFlow's tf.distribute names them.
enum class DeviceOps { kNccl, kHierarchicalCopy, kReductionToOneDevice };
std::string_view DeviceOpsName(DeviceOps ops);

struct DeviceCommunicatorOptions {
  DeviceOps ops = DeviceOps::kNccl;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  // Which ranks of the job these are, for messages: the first one, and from one to the next.
  int first_rank = 0;
  int rank_stride = 1;
  bool shared_devices = false;            // some of the ranks share a GPU
  contract::Store* store = nullptr;       // used while connecting only
  std::string key;                        // of this group in the store
  std::string interface;                  // of the network, for NCCL; empty: its own choice
  Deadline deadline;                      // of connecting
  std::chrono::milliseconds timeout;      // of each wait of one process for another, later
  InProcessSegments* segments = nullptr;  // ranks are threads of this process (tests)
};

// What ranks add up at the end of a step or of an evaluation, in device memory.
struct DeviceReport {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
  int64_t stop = 0;  // ranks that were asked to stop
};

// The part of `count` floats that a rank has where they are scattered: in order, beginning on 16 bytes where
// the first of them does, equally long but for the last rank's, which has what is left over as well.
constexpr Range PartOnDevice(size_t count, int rank, int size) {
  constexpr size_t kWide = 4;
  const auto r = static_cast<size_t>(rank), n = static_cast<size_t>(size);
  const size_t width = count / n / kWide * kWide;
  return {width * r, r + 1 == n ? count : width * (r + 1)};
}

// A fixed group of ranks, one GPU (or a share of one) each. Every rank enqueues the same operations in the
// same order with the same sizes. Calls return once the work is enqueued on `stream`, at most after a wait
// until the others have come to enqueue theirs; the result is there when the stream has come past it. All
// sums are over the ranks, in place, the same bits on every rank; float sums of NCCL may depend on the number
// of ranks and the size, those over peer access add in rank order.
//
// Failure: a rank that is lost makes Check() throw CollectiveLost, or the stream never comes past; so whoever
// waits for the stream polls Check() and has a deadline. After Abort, or a failure, the process is to end.
// One thread at a time, for which the backend's device is the current one; Abort from any.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  virtual std::string description() const = 0;  // for the log: "NCCL 2.30.7"
  // Collective, and blocks: operations work on [data, data + bytes) from now on, memory of
  // DeviceBackend::shareable() that is as large on every rank and is not freed before Finish. All that
  // operations are given lies in such memory, at the same place in it on every rank.
  virtual void Register(void* data, size_t bytes, Deadline deadline) = 0;
  virtual void AllReduce(float* data, size_t count, Stream stream) = 0;
  virtual void AllReduce(DeviceReport* report, Stream stream) = 0;
  virtual void Broadcast(void* data, size_t bytes, int root, Stream stream) = 0;
  // Of the sum over the ranks this rank's PartOnDevice, at `mine`: that part's own place in `data`, or other
  // device memory (which need not be registered) as far from a multiple of 16 bytes. The rest of `data` holds
  // anything afterwards.
  virtual void ReduceScatter(float* data, size_t count, float* mine, Stream stream) = 0;
  // The way back: every rank's part of `data` on all of them.
  virtual void AllGatherParts(float* data, size_t count, Stream stream) = 0;
  // Whether the operations may be recorded into a DeviceGraph; then every rank records the same ones at the
  // same place among the others.
  virtual bool recordable() const = 0;
  // Throws CollectiveLost, naming the operation and what is known of the rank, if the group has failed.
  virtual void Check() = 0;
  // Collective, and blocks: lets go of the others' memory. When all work is done; nothing comes after it.
  virtual void Finish(Deadline deadline) = 0;
  virtual void Abort() noexcept = 0;
};

// Exported by liblockstep-cuda.so under kCudaCommunicators. Throws RendezvousFailed (naming who did not come
// by the deadline), Unsupported (NCCL too old for several ranks on one GPU; no peer access; naming the
// devices).
struct CudaCommunicators {
  std::unique_ptr<DeviceCommunicator> (*connect)(const DeviceCommunicatorOptions& options,
                                                 DeviceBackend& backend);
  std::unique_ptr<DeviceLink> (*link)(const DeviceLinkOptions& options, DeviceBackend& backend);
};
inline constexpr const char* kCudaCommunicators = "lockstep_cuda_communicators";

}  // namespace lockstep::trainer::collectives
