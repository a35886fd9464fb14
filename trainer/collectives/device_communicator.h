#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/contract/store.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/device_backend.h"
#include "trainer/collectives/communicator.h"

// Sums over ranks whose buffers lie in the memory of GPUs. nccl/ carries them over NCCL, local/cuda_* over
// peer access between the processes of one machine (CUDA IPC). Both are part of liblockstep-cuda.so.
namespace lockstep::trainer::collectives {

// How gradients of several devices are summed; as TensorFlow's tf.distribute names them.
enum class DeviceOps { kNccl, kHierarchicalCopy, kReductionToOneDevice };
std::string_view DeviceOpsName(DeviceOps ops);

struct DeviceCommunicatorOptions {
  DeviceOps ops = DeviceOps::kNccl;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  contract::Store* store = nullptr;  // used while connecting only
  std::string key;                   // of this group in the store
  std::string interface;             // of the network, for NCCL; empty: its own choice
  Deadline deadline;                 // of connecting
};

// A fixed group of ranks, one GPU (or a share of one) each. Every rank enqueues the same operations in the
// same order with the same sizes. Calls return once the work is enqueued on `stream`; the result is there
// when the stream has come past it. All sums are over the ranks, in place, the same bits on every rank; float
// sums of NCCL may depend on the number of ranks and the size, those over peer access add in rank order.
//
// Failure: a rank that is lost makes Check() throw CollectiveLost, or the stream never comes past; so whoever
// waits for the stream polls Check() and has a deadline. After Abort, or a failure, the process is to end.
// One thread at a time; Abort from any.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  virtual std::string description() const = 0;  // "NCCL 2.30.7", for the log
  virtual void AllReduce(float* data, size_t count, Stream stream) = 0;
  virtual void AllReduce(double* data, size_t count, Stream stream) = 0;
  virtual void Broadcast(void* data, size_t bytes, int root, Stream stream) = 0;
  // Whether the operations may be recorded into a DeviceGraph.
  virtual bool recordable() const = 0;
  // Throws CollectiveLost, naming the operation and what is known of the rank, if the group has failed.
  virtual void Check() = 0;
  virtual void Abort() noexcept = 0;
};

// Exported by liblockstep-cuda.so under kCudaCommunicators. Throws RendezvousFailed (naming who did not come
// by the deadline), Unsupported (NCCL too old for several ranks on one GPU; no peer access; naming the
// devices).
struct CudaCommunicators {
  std::unique_ptr<DeviceCommunicator> (*connect)(const DeviceCommunicatorOptions& options,
                                                 DeviceBackend& backend);
};
inline constexpr const char* kCudaCommunicators = "lockstep_cuda_communicators";

}  // namespace lockstep::trainer::collectives
