#include "trainer/collectives/nccl/nccl_link.h"

#include <nccl.h>

#include <algorithm>
#include <vector>

#include "trainer/collectives/local/link_places.h"
#include "trainer/collectives/nccl/nccl_group.h"

namespace lockstep::trainer::collectives {
namespace {

constexpr char kOperation[] = "all-reduce of a micro-batch";

DeviceCommunicatorOptions OneWay(const DeviceLinkOptions& options, const std::string& way) {
  return {.ops = DeviceOps::kNccl,
          .rank = options.asks ? 0 : 1,
          .size = 2,
          .first_rank = options.lower_rank,
          .shared_devices = options.shared_devices,
          .store = options.store,
          .key = options.key + "/" + way,
          .interface = options.interface,
          .deadline = options.deadline,
          .timeout = options.timeout,
          .segments = options.segments};
}

class NcclLink final : public DeviceLink {
 public:
  NcclLink(const DeviceLinkOptions& options, DeviceBackend& backend)
      : peer_(options.asks ? 1 : 0),
        questions_(OneWay(options, "questions"), backend),
        answers_(OneWay(options, "answers"), backend),
        out_(options.asks ? questions_ : answers_),
        in_(options.asks ? answers_ : questions_),
        places_(options, backend),
        out_stream_(trainer::cuda::MakeStream(trainer::cuda::HighestPriority())),
        in_stream_(trainer::cuda::MakeStream(trainer::cuda::HighestPriority())) {
    for (size_t i = 0; i < options.places; ++i) arrived_.push_back(trainer::cuda::MakeEvent());
    // With its first operation NCCL connects, and the hosts wait for each other.
    if (options.asks) Send(nullptr, 0);
    Receive(0);
    if (!options.asks) Send(nullptr, 0);
  }

  std::string description() const override { return questions_.description(); }

  void Send(const void* from, size_t bytes) override {
    trainer::cuda::UseDevice(places_.device());
    places_.Made(sent_++, out_stream_.get());
    const void* const some = bytes == 0 ? places_.in() : from;
    out_.Enqueue(
        kOperation,
        [&](ncclComm_t comm, cudaStream_t on) {
          return ncclSend(some, std::max<size_t>(bytes, 1), ncclUint8, peer_, comm, on);
        },
        out_stream_.get());
  }

  // Into the place from when what was there has been answered, or the next question made: see DeviceLink.
  void* Receive(size_t bytes) override {
    trainer::cuda::UseDevice(places_.device());
    std::byte* const place = places_.in(received_);
    places_.AwaitMade(received_, in_stream_.get());
    in_.Enqueue(
        kOperation,
        [&](ncclComm_t comm, cudaStream_t on) {
          return ncclRecv(place, std::max<size_t>(bytes, 1), ncclUint8, peer_, comm, on);
        },
        in_stream_.get());
    const cudaEvent_t arrived = arrived_[places_.of(received_++)].get();
    LOCKSTEP_CUDA(cudaEventRecord(arrived, in_stream_.get()));
    LOCKSTEP_CUDA(cudaStreamWaitEvent(places_.compute(), arrived, 0));
    return place;
  }

  void Check() override {
    questions_.Check(kOperation);
    answers_.Check(kOperation);
  }
  void Finish(Deadline deadline) override {
    questions_.Finish(deadline);
    answers_.Finish(deadline);
  }
  void Abort() noexcept override {
    questions_.Abort();
    answers_.Abort();
  }

 private:
  int peer_;  // in each of the two
  NcclGroup questions_, answers_;
  NcclGroup& out_;
  NcclGroup& in_;
  cuda::LinkPlaces places_;
  trainer::cuda::CudaStream out_stream_, in_stream_;
  std::vector<trainer::cuda::CudaEvent> arrived_;  // by place
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace

std::unique_ptr<DeviceLink> LinkNccl(const DeviceLinkOptions& options, DeviceBackend& backend) {
  trainer::cuda::UseDevice(backend.identity().ordinal);
  return std::make_unique<NcclLink>(options, backend);
}

}  // namespace lockstep::trainer::collectives
