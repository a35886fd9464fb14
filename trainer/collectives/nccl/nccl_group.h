#pragma once

#include <nccl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "trainer/collectives/device_communicator.h"

namespace lockstep::trainer::collectives {

// A communicator of NCCL's, of some ranks, from their meeting to its end. NCCL is never waited for in a call
// of its own: everything is started and then polled, with a deadline. What the environment says of NCCL_* is
// left as it is. Threads: as of a DeviceCommunicator.
class NcclGroup {
 public:
  // Collective. Throws RendezvousFailed (naming who has not come), Unsupported (ranks share a GPU and NCCL is
  // older than 2.30), DeviceLost.
  NcclGroup(const DeviceCommunicatorOptions& options, DeviceBackend& backend);
  ~NcclGroup() { Abort(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  const DeviceCommunicatorOptions& options() const { return options_; }
  std::string description() const;  // "NCCL 2.30.7"

  // Asks NCCL for `call` on the stream, with its device the current one, and returns when it is under way.
  // Throws CollectiveLost, DeviceLost, Unsupported, naming the operation.
  using Call = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;
  void Enqueue(const char* operation, const Call& call, Stream stream);
  // Without it operations go through NCCL's own buffers, which is slower and no error.
  void Register(void* data, size_t bytes, Deadline deadline);
  void Check(const char* operation);
  // When all work is done; nothing comes after it.
  void Finish(Deadline deadline);
  void Abort() noexcept;

 private:
  void MakeCurrent() const;
  void Must(ncclResult_t result, const std::string& operation) const;
  void ThrowIfAborted() const;
  void SetEnvironment() const;
  ncclUniqueId MeetTheOthers() const;
  void Settle(const std::string& operation, Deadline deadline) const;

  DeviceCommunicatorOptions options_;
  int device_;
  int version_ = 0;
  ncclComm_t comm_ = nullptr;
  std::vector<void*> registered_;
  std::timed_mutex using_;  // comm_
  std::atomic<bool> aborted_{false};
};

}  // namespace lockstep::trainer::collectives
