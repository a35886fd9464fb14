#include "trainer/collectives/local/cuda_peer_link.h"

#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "trainer/collectives/local/cuda_peers.h"
#include "trainer/collectives/local/link_places.h"

namespace lockstep::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kOperation[] = "all-reduce of a micro-batch";

class PeerLink final : public DeviceLink {
 public:
  PeerLink(const DeviceLinkOptions& options, DeviceBackend& backend)
      : options_(options),
        group_(LocalGroup::Join({.rank = options.asks ? 0 : 1,
                                 .size = 2,
                                 .first_rank = options.lower_rank,
                                 .store = options.store,
                                 .key = options.key,
                                 .deadline = options.deadline,
                                 .segments = options.segments})),
        places_(options, backend),
        out_(trainer::cuda::MakeStream(trainer::cuda::HighestPriority())),
        control_(group_->CreateSegment("link", 2 * sizeof(Member), options.deadline)),
        members_(control_.View<Member>(0, 2).data()),
        arrived_(*group_, "link-events", options.places, options.deadline),
        peers_(*group_, places_.device(), options.deadline) {
    mine().pid = ::getpid();
    const std::vector<void*> of_ranks = peers_.Open(places_.in(), options.deadline, &why_staged_);
    if (!of_ranks.empty()) {
      theirs_ = static_cast<std::byte*>(of_ranks[static_cast<size_t>(peer())]);
      return;
    }
    Stage();
  }

  // What is on its way reads memory that goes after this. And where the other is a thread of this process, it
  // writes into memory, and waits for events, that go with this.
  ~PeerLink() override {
    const auto give_up = Clock::now() + std::chrono::milliseconds(200);
    const auto wait_while = [give_up](const auto& busy) {
      while (busy() && Clock::now() < give_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    wait_while([this] { return cudaStreamQuery(out_.get()) == cudaErrorNotReady; });
    cudaGetLastError();  // it is no failure of a later call
    mine().at_rest.store(true);
    wait_while([this] { return members_[peer()].pid == mine().pid && !members_[peer()].at_rest.load(); });
  }

  std::string description() const override {
    return why_staged_.empty() ? "peer access" : "the host's memory (" + why_staged_ + ")";
  }

  void Send(const void* from, size_t bytes) override {
    group_->ThrowIfFailed(kOperation);
    trainer::cuda::UseDevice(places_.device());
    places_.Made(sent_, out_.get());
    Copy(theirs_ + places_.of(sent_) * places_.out_bytes(), from, bytes, out_.get());
    LOCKSTEP_CUDA(cudaEventRecord(arrived_.of(group_->rank(), places_.of(sent_)), out_.get()));
    mine().sent.store(++sent_);
    group_->Wake();
  }

  void* Receive(size_t bytes) override {
    trainer::cuda::UseDevice(places_.device());
    const auto missing = [this](int r) { return r == peer() && members_[r].sent.load() <= received_; };
    group_->Wait(
        kOperation, [&] { return missing(peer()) ? LocalGroup::Look::kIdle : LocalGroup::Look::kDone; },
        missing, Clock::now() + options_.timeout);
    LOCKSTEP_CUDA(cudaStreamWaitEvent(places_.compute(), arrived_.of(peer(), places_.of(received_)), 0));
    std::byte* const place = places_.in(received_);
    if (ours_ != nullptr) {
      Copy(place, ours_ + places_.of(received_) * places_.in_bytes(), bytes, places_.compute());
    }
    ++received_;
    return place;
  }

  void Check() override { group_->ThrowIfFailed(kOperation); }
  void Finish(Deadline deadline) override {
    trainer::cuda::UseDevice(places_.device());
    group_->Barrier("finishing", deadline);
    peers_.Close(deadline);
  }
  void Abort() noexcept override { group_->Abort(); }

 private:
  struct alignas(64) Member {
    std::atomic<uint64_t> sent;  // messages whose event is recorded
    std::atomic<bool> at_rest;   // sends and receives no more
    int pid;                     // written in front of the barriers of Peers::Open
  };

  int peer() const { return 1 - group_->rank(); }
  Member& mine() const { return members_[group_->rank()]; }

  static void Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    if (bytes > 0) LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  }

  // In the host's memory: the places of the questions, then those of the answers.
  void Stage() {
    const size_t in = places_.count() * places_.in_bytes(), out = places_.count() * places_.out_bytes();
    stages_ = group_->CreateSegment("stages", in + out, options_.deadline);
    pinned_ = cuda::Pin(stages_);
    theirs_ = stages_.data() + (options_.asks ? 0 : in);
    ours_ = stages_.data() + (options_.asks ? out : 0);
    group_->Barrier("pinning shared memory", options_.deadline);
  }

  DeviceLinkOptions options_;
  std::unique_ptr<LocalGroup> group_;
  cuda::LinkPlaces places_;
  trainer::cuda::CudaStream out_;
  SharedSegment control_;
  Member* members_;
  cuda::SharedEvents arrived_;  // by place, in what its rank sends
  cuda::Peers peers_;
  std::string why_staged_;
  SharedSegment stages_;
  cuda::PinnedSegment pinned_;
  std::byte* theirs_ = nullptr;  // where this rank's messages go
  std::byte* ours_ = nullptr;    // through the host's memory: where the other's come
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace

std::unique_ptr<DeviceLink> LinkPeers(const DeviceLinkOptions& options, DeviceBackend& backend) {
  trainer::cuda::UseDevice(backend.identity().ordinal);
  return std::make_unique<PeerLink>(options, backend);
}

}  // namespace lockstep::trainer::collectives
