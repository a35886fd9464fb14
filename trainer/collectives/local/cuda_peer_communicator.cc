#include "trainer/collectives/local/cuda_peer_communicator.h"

#include <algorithm>
#include <vector>

#include "trainer/collectives/local/cuda_peers.h"
#include "trainer/collectives/local/cuda_sum.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using cuda::Across;

// Through the host's memory, what goes at once.
constexpr size_t kPiece = size_t{4} << 20;

class PeerCommunicator final : public DeviceCommunicator {
 public:
  PeerCommunicator(const DeviceCommunicatorOptions& options, DeviceBackend& backend)
      : options_(options),
        device_(backend.identity().ordinal),
        group_(LocalGroup::Join({.rank = options.local_rank,
                                 .size = options.local_size,
                                 .first_rank = options.first_rank,
                                 .rank_stride = options.rank_stride,
                                 .store = options.store,
                                 .key = options.key,
                                 .deadline = options.deadline,
                                 .segments = options.segments})),
        peers_(*group_, device_, options.deadline) {}

  std::string description() const override {
    const std::string name(DeviceOpsName(options_.ops));
    return staged() ? name + " through the host's memory (" + why_staged_ + ")" : name + " over peer access";
  }

  void Register(void* data, size_t bytes, Deadline deadline) override {
    MakeCurrent();
    std::string why;
    std::vector<void*> of_ranks = peers_.Open(data, deadline, &why);
    if (of_ranks.empty() && !staged()) Stage(why, deadline);
    registered_.push_back({static_cast<char*>(data), bytes, std::move(of_ranks)});
  }

  void AllReduce(float* data, size_t count, Stream stream) override {
    MakeCurrent();
    auto* const on = static_cast<cudaStream_t>(stream);
    const Memory& memory = Registered(data, count * sizeof(float));
    if (!staged()) {
      peers_.Meet(kAllReduce, on, Deadline());
      const Range mine = MyPart(count);
      cuda::SumInRankOrder(OverAll<float>(memory, data), mine.begin, mine.end, on);
      peers_.Meet(kAllReduce, on, Deadline());
      return;
    }
    const size_t most = kPiece / sizeof(float);
    for (size_t begin = 0; begin < count; begin += most) {
      const size_t piece = std::min(most, count - begin);
      SumInStages(data + begin, piece, kAllReduce, on);
      Take(data + begin, StageOf(Result()), piece * sizeof(float), on);
    }
  }

  void AllReduce(DeviceReport* report, Stream stream) override {
    MakeCurrent();
    auto* const on = static_cast<cudaStream_t>(stream);
    const Memory& memory = Registered(report, sizeof *report);
    if (staged()) Put(report, sizeof *report, on);
    peers_.Meet(kAllReduce, on, Deadline());
    if (group_->rank() == 0) {
      cuda::SumInRankOrder(staged() ? OverStages<DeviceReport>() : OverAll<DeviceReport>(memory, report), on);
    }
    peers_.Meet(kAllReduce, on, Deadline());
    if (staged()) Take(report, StageOf(Result()), sizeof *report, on);
  }

  void Broadcast(void* data, size_t bytes, int root, Stream stream) override {
    MakeCurrent();
    auto* const on = static_cast<cudaStream_t>(stream);
    const Memory& memory = Registered(data, bytes);
    const bool gives = group_->rank() == root;
    if (!staged()) {
      peers_.Meet(kBroadcast, on, Deadline());
      if (!gives) Take(data, Place<char>(memory, root, data), bytes, on);
      peers_.Meet(kBroadcast, on, Deadline());
      return;
    }
    for (size_t begin = 0; begin < bytes; begin += kPiece) {
      const size_t piece = std::min(kPiece, bytes - begin);
      char* const place = static_cast<char*>(data) + begin;
      if (gives) Put(place, piece, on);
      peers_.Meet(kBroadcast, on, Deadline());
      if (!gives) Take(place, StageOf(root), piece, on);
      peers_.Meet(kBroadcast, on, Deadline());
    }
  }

  void ReduceScatter(float* data, size_t count, float* mine, Stream stream) override {
    MakeCurrent();
    auto* const on = static_cast<cudaStream_t>(stream);
    const Memory& memory = Registered(data, count * sizeof(float));
    const Range part = PartOnDevice(count, group_->rank(), group_->size());
    if (staged()) return ReduceScatterStaged(data, count, mine, on);
    peers_.Meet(kReduceScatter, on, Deadline());
    if (options_.ops == DeviceOps::kHierarchicalCopy) {
      cuda::SumInRankOrder(FromAll(memory, data, mine - part.begin), part.begin, part.end, on);
    } else {
      if (group_->rank() == 0) cuda::SumInRankOrder(FromAll(memory, data, data), 0, count, on);
      peers_.Meet(kReduceScatter, on, Deadline());
      const float* const sum = Place<float>(memory, 0, data) + part.begin;
      if (mine != sum) Take(mine, sum, part.size() * sizeof(float), on);
    }
    peers_.Meet(kReduceScatter, on, Deadline());
  }

  void AllGatherParts(float* data, size_t count, Stream stream) override {
    MakeCurrent();
    auto* const on = static_cast<cudaStream_t>(stream);
    const Memory& memory = Registered(data, count * sizeof(float));
    if (staged()) return AllGatherStaged(data, count, on);
    peers_.Meet(kAllGather, on, Deadline());
    for (int r = 0; r < group_->size(); ++r) {
      const Range part = PartOnDevice(count, r, group_->size());
      if (r == group_->rank()) continue;
      Take(data + part.begin, Place<float>(memory, r, data) + part.begin, part.size() * sizeof(float), on);
    }
    peers_.Meet(kAllGather, on, Deadline());
  }

  // The hosts wait for one another at each operation, which cannot be recorded.
  bool recordable() const override { return false; }
  void Check() override { group_->ThrowIfFailed(kAllReduce); }
  void Finish(Deadline deadline) override {
    MakeCurrent();
    group_->Barrier("finishing", deadline);
    peers_.Close(deadline);
  }
  void Abort() noexcept override { group_->Abort(); }

 private:
  static constexpr char kAllReduce[] = "all-reduce";
  static constexpr char kBroadcast[] = "broadcast";
  static constexpr char kReduceScatter[] = "reduce-scatter";
  static constexpr char kAllGather[] = "all-gather";

  // Registered memory, and where each rank's is for this one.
  struct Memory {
    char* mine;
    size_t bytes;
    std::vector<void*> of_ranks;
  };

  bool staged() const { return !why_staged_.empty(); }
  collectives::Deadline Deadline() const { return std::chrono::steady_clock::now() + options_.timeout; }
  void MakeCurrent() const { LOCKSTEP_CUDA(cudaSetDevice(device_)); }

  // Borders on multiples of 16 bytes.
  Range MyPart(size_t count) const {
    constexpr size_t kWide = 4;
    if (options_.ops == DeviceOps::kReductionToOneDevice) return {0, group_->rank() == 0 ? count : 0};
    const Range part = PartOf((count + kWide - 1) / kWide, group_->rank(), group_->size());
    return {std::min(part.begin * kWide, count), std::min(part.end * kWide, count)};
  }

  const Memory& Registered(const void* data, size_t bytes) const {
    const auto* const begin = static_cast<const char*>(data);
    for (const Memory& memory : registered_) {
      if (begin >= memory.mine && begin + bytes <= memory.mine + memory.bytes) return memory;
    }
    throw Unsupported(description() + ": " + std::to_string(bytes) + " bytes that were not registered");
  }
  // Where rank r has what this rank has at `mine`.
  template <typename T>
  T* Place(const Memory& memory, int r, void* mine) const {
    const auto offset = static_cast<char*>(mine) - memory.mine;
    return reinterpret_cast<T*>(static_cast<char*>(memory.of_ranks[static_cast<size_t>(r)]) + offset);
  }
  template <typename T>
  Across<T> OverAll(const Memory& memory, T* mine) const {
    Across<T> across{.ranks = group_->size(), .targets = group_->size()};
    for (int r = 0; r < group_->size(); ++r) across.from[r] = across.to[r] = Place<T>(memory, r, mine);
    return across;
  }
  Across<float> FromAll(const Memory& memory, float* mine, float* to) const {
    Across<float> across = OverAll(memory, mine);
    across.targets = 1;
    across.to[0] = to;
    return across;
  }
  template <typename T>
  Across<T> OverStages() const {
    Across<T> across{.ranks = group_->size(), .targets = 1};
    for (int r = 0; r < group_->size(); ++r) across.from[r] = reinterpret_cast<const T*>(StageOf(r));
    across.to[0] = reinterpret_cast<T*>(StageOf(Result()));
    return across;
  }

  // In the host's memory, each rank has a piece, and behind them is one for the result.
  int Result() const { return group_->size(); }
  std::byte* StageOf(int r) const { return stages_.data() + static_cast<size_t>(r) * kPiece; }
  void Stage(const std::string& why, collectives::Deadline deadline) {
    why_staged_ = why;
    stages_ = group_->CreateSegment("stages", static_cast<size_t>(group_->size() + 1) * kPiece, deadline);
    pinned_ = cuda::Pin(stages_);
    group_->Barrier("pinning shared memory", deadline);
  }
  void Put(const void* from, size_t bytes, cudaStream_t stream) const {
    LOCKSTEP_CUDA(cudaMemcpyAsync(StageOf(group_->rank()), from, bytes, cudaMemcpyDefault, stream));
  }
  static void Take(void* to, const void* from, size_t bytes, cudaStream_t stream) {
    if (bytes > 0) LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  }

  // What floats [begin, begin + piece) of `count` have of rank r's part, counted from `begin`.
  Range PartOfPiece(size_t count, int r, size_t begin, size_t piece) const {
    const Range part = PartOnDevice(count, r, group_->size());
    const size_t from = std::clamp(part.begin, begin, begin + piece) - begin;
    return {from, std::clamp(part.end, begin, begin + piece) - begin};
  }
  void ReduceScatterStaged(float* data, size_t count, float* mine, cudaStream_t on) {
    const size_t most = kPiece / sizeof(float);
    for (size_t begin = 0; begin < count; begin += most) {
      const size_t piece = std::min(most, count - begin);
      SumInStages(data + begin, piece, kReduceScatter, on);
      const Range part = PartOfPiece(count, group_->rank(), begin, piece);
      Take(mine, reinterpret_cast<float*>(StageOf(Result())) + part.begin, part.size() * sizeof(float), on);
      mine += part.size();
    }
  }
  void AllGatherStaged(float* data, size_t count, cudaStream_t on) {
    const size_t most = kPiece / sizeof(float);
    for (size_t begin = 0; begin < count; begin += most) {
      const size_t piece = std::min(most, count - begin);
      const auto each = [&](int r, const auto& copy) {
        const Range part = PartOfPiece(count, r, begin, piece);
        copy(data + begin + part.begin, reinterpret_cast<float*>(StageOf(r)), part.size() * sizeof(float));
      };
      each(group_->rank(), [&](float* here, float* stage, size_t bytes) { Take(stage, here, bytes, on); });
      peers_.Meet(kAllGather, on, Deadline());
      for (int r = 0; r < group_->size(); ++r) {
        if (r == group_->rank()) continue;
        each(r, [&](float* here, float* stage, size_t bytes) { Take(here, stage, bytes, on); });
      }
      peers_.Meet(kAllGather, on, Deadline());
    }
  }
  // The sum of a piece over the ranks, in the result's stage until the next operation puts something there.
  void SumInStages(const float* data, size_t piece, const char* operation, cudaStream_t on) {
    Put(data, piece * sizeof(float), on);
    peers_.Meet(operation, on, Deadline());
    const Range mine = MyPart(piece);
    cuda::SumInRankOrder(OverStages<float>(), mine.begin, mine.end, on);
    peers_.Meet(operation, on, Deadline());
  }

  DeviceCommunicatorOptions options_;
  int device_;
  std::unique_ptr<LocalGroup> group_;
  cuda::Peers peers_;
  std::vector<Memory> registered_;
  std::string why_staged_;
  SharedSegment stages_;
  cuda::PinnedSegment pinned_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> ConnectPeers(const DeviceCommunicatorOptions& options,
                                                 DeviceBackend& backend) {
  const std::string name(DeviceOpsName(options.ops));
  if (options.local_size != options.size) {
    throw Unsupported(name + " is for the GPUs of one machine; NCCL would be right");
  }
  if (options.size > cuda::kMostPeers) {
    throw Unsupported(name + " is for at most " + std::to_string(cuda::kMostPeers) + " ranks; there are " +
                      std::to_string(options.size));
  }
  LOCKSTEP_CUDA(cudaSetDevice(backend.identity().ordinal));
  return std::make_unique<PeerCommunicator>(options, backend);
}

}  // namespace lockstep::trainer::collectives
