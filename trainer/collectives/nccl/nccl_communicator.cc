#include "trainer/collectives/nccl/nccl_communicator.h"

#include "trainer/collectives/nccl/nccl_group.h"

namespace lockstep::trainer::collectives {
namespace {

constexpr char kAllReduce[] = "all-reduce";

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(const DeviceCommunicatorOptions& options, DeviceBackend& backend)
      : group_(options, backend) {}

  std::string description() const override { return group_.description(); }
  void Register(void* data, size_t bytes, Deadline deadline) override {
    group_.Register(data, bytes, deadline);
  }

  void AllReduce(float* data, size_t count, Stream stream) override {
    group_.Enqueue(
        kAllReduce,
        [&](ncclComm_t comm, cudaStream_t on) {
          return ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, on);
        },
        stream);
  }

  void AllReduce(DeviceReport* report, Stream stream) override {
    static_assert(sizeof(DeviceReport) == sizeof(double) + 3 * sizeof(int64_t));
    group_.Enqueue(
        kAllReduce,
        [&](ncclComm_t comm, cudaStream_t on) {
          return Together(
              [&] {
                return ncclAllReduce(&report->loss_sum, &report->loss_sum, 1, ncclFloat64, ncclSum, comm, on);
              },
              [&] {
                return ncclAllReduce(&report->correct, &report->correct, 3, ncclInt64, ncclSum, comm, on);
              });
        },
        stream);
  }

  void Broadcast(void* data, size_t bytes, int root, Stream stream) override {
    group_.Enqueue(
        "broadcast",
        [&](ncclComm_t comm, cudaStream_t on) {
          return ncclBroadcast(data, data, bytes, ncclUint8, root, comm, on);
        },
        stream);
  }

  // NCCL's own operations are on equal parts: the last rank's rest goes beside them.
  void ReduceScatter(float* data, size_t count, float* mine, Stream stream) override {
    const Parts parts(count, size());
    float* const rest = data + parts.even;
    float* const sum = rank() == parts.last ? mine + parts.width : rest;
    group_.Enqueue(
        "reduce-scatter",
        [&](ncclComm_t comm, cudaStream_t on) {
          return Together(
              [&] {
                if (parts.width == 0) return ncclSuccess;
                return ncclReduceScatter(data, mine, parts.width, ncclFloat32, ncclSum, comm, on);
              },
              [&] {
                if (parts.rest == 0) return ncclSuccess;
                return ncclReduce(rest, sum, parts.rest, ncclFloat32, ncclSum, parts.last, comm, on);
              });
        },
        stream);
  }

  void AllGatherParts(float* data, size_t count, Stream stream) override {
    const Parts parts(count, size());
    const float* const mine = data + parts.width * static_cast<size_t>(rank());
    float* const rest = data + parts.even;
    group_.Enqueue(
        "all-gather",
        [&](ncclComm_t comm, cudaStream_t on) {
          return Together(
              [&] {
                if (parts.width == 0) return ncclSuccess;
                return ncclAllGather(mine, data, parts.width, ncclFloat32, comm, on);
              },
              [&] {
                if (parts.rest == 0) return ncclSuccess;
                return ncclBroadcast(rest, rest, parts.rest, ncclFloat32, parts.last, comm, on);
              });
        },
        stream);
  }

  bool recordable() const override { return true; }

  void Check() override { group_.Check(kAllReduce); }
  void Finish(Deadline deadline) override { group_.Finish(deadline); }
  void Abort() noexcept override { group_.Abort(); }

 private:
  // PartOnDevice, as NCCL has it: equal parts, and what is left over.
  struct Parts {
    Parts(size_t count, int size)
        : last(size - 1),
          width(size > 1 ? PartOnDevice(count, 0, size).size() : count),
          even(width * static_cast<size_t>(size)),
          rest(count - even) {}
    int last;
    size_t width, even, rest;
  };

  // As one operation.
  template <typename... Calls>
  static ncclResult_t Together(const Calls&... calls) {
    const ncclResult_t started = ncclGroupStart();
    if (started != ncclSuccess) return started;
    ncclResult_t failure = ncclSuccess;
    const auto note = [&](ncclResult_t result) {
      if (result != ncclSuccess && result != ncclInProgress && failure == ncclSuccess) failure = result;
    };
    (note(calls()), ...);
    const ncclResult_t ended = ncclGroupEnd();
    return failure != ncclSuccess ? failure : ended;
  }

  int rank() const { return group_.options().rank; }
  int size() const { return group_.options().size; }

  NcclGroup group_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> ConnectNccl(const DeviceCommunicatorOptions& options,
                                                DeviceBackend& backend) {
  return std::make_unique<NcclCommunicator>(options, backend);
}

}  // namespace lockstep::trainer::collectives
