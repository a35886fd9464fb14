#include "trainer/collectives/local/local_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "trainer/collectives/sum.h"

namespace lockstep::trainer::collectives {
namespace {

constexpr size_t kSlot =
    256 * 1024;  // bytes of each rank's two staging slots: with some ranks, what a cache holds
constexpr size_t kSummedByAll =
    8 * 1024;  // bytes up to which each rank sums everything itself and saves a barrier
constexpr size_t kMailbox = 16 * 1024;  // bytes on the way between two ranks

using Look = LocalGroup::Look;

// Bytes on the way from one rank to another: a ring. Zero bytes are an empty one.
struct alignas(64) Mailbox {
  std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::byte bytes[kMailbox];
};

// Each piece of data is staged in one of two slots of its rank, by turns. A rank writes into a slot again
// only after a barrier that everyone has reached with the piece between, done with the one before: so a piece
// costs one barrier, or two where it is summed in parts.
class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(LocalGroup& group, Deadline deadline) : group_(group) {
    const size_t n = static_cast<size_t>(group.size());
    staging_ = group.CreateSegment("staging", 2 * n * kSlot, deadline);
    mailboxes_segment_ =
        group.CreateSegment("mailboxes", n * n * sizeof(Mailbox), deadline, /*resident=*/false);
    mailboxes_ = reinterpret_cast<Mailbox*>(mailboxes_segment_.data());
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void AllReduce(std::span<float> data, Deadline deadline) override { AllReduceAny(data, deadline); }
  void AllReduce(std::span<double> data, Deadline deadline) override { AllReduceAny(data, deadline); }

  void Reduce(std::span<float> data, int root, Deadline deadline) override {
    for (size_t at = 0; at < data.size(); at += kSlot / sizeof(float)) {
      const auto piece = data.subspan(at, std::min(kSlot / sizeof(float), data.size() - at));
      Stage(std::as_bytes(piece));
      group_.Barrier("reduce", deadline);
      if (rank() == root) SumInOrder(Slots<float>(0), piece.data(), piece.size());
    }
  }

  void Broadcast(std::span<std::byte> data, int root, Deadline deadline) override {
    for (size_t at = 0; at < data.size(); at += kSlot) {
      const auto piece = data.subspan(at, std::min(kSlot, data.size() - at));
      turn_ ^= 1;
      if (rank() == root) std::memcpy(Slot(root), piece.data(), piece.size());
      group_.Barrier("broadcast", deadline);
      if (rank() != root) std::memcpy(piece.data(), Slot(root), piece.size());
    }
  }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    for (size_t at = 0; at < mine.size(); at += kSlot) {
      const auto piece = mine.subspan(at, std::min(kSlot, mine.size() - at));
      Stage(piece);
      group_.Barrier("all-gather", deadline);
      for (int r = 0; r < size(); ++r) {
        std::memcpy(all.data() + static_cast<size_t>(r) * mine.size() + at, Slot(r), piece.size());
      }
    }
  }

  void ReduceScatter(std::span<float> data, Deadline deadline) override {
    const size_t step = kSlot / sizeof(float) / static_cast<size_t>(size());
    const size_t longest = PartOf(data.size(), 0, size()).size();
    for (size_t at = 0; at < longest; at += step) {
      turn_ ^= 1;
      const auto piece = [&](int part) {
        const Range range = PartOf(data.size(), part, size());
        const size_t begin = std::min(range.begin + at, range.end);
        return data.subspan(begin, std::min(step, range.end - begin));
      };
      for (int r = 0; r < size(); ++r) {
        std::memcpy(Slot(rank()) + static_cast<size_t>(r) * step * sizeof(float), piece(r).data(),
                    piece(r).size_bytes());
      }
      group_.Barrier("reduce-scatter", deadline);
      const auto mine = piece(rank());
      SumInOrder(Slots<float>(static_cast<size_t>(rank()) * step), mine.data(), mine.size());
    }
  }

  void AllGatherParts(std::span<float> data, Deadline deadline) override {
    GatherParts(
        data, [](int) { return true; }, deadline);
  }

  void CopyPartsOn(std::span<float> data, Deadline deadline) override {
    const int before = (rank() + size() - 1) % size();
    GatherParts(
        data, [before](int r) { return r == before; }, deadline);
  }

  void Send(std::span<const std::byte> data, int to, Deadline deadline) override {
    Mailbox& box = BoxOf(rank(), to);
    const auto full = [&] { return box.written.load() - box.read.load() == kMailbox; };
    Move("send", to, full, data.size(), deadline, [&](size_t done) {
      const uint64_t written = box.written.load();
      const size_t n = std::min<size_t>(data.size() - done, kMailbox - (written - box.read.load()));
      for (size_t i = 0; i < n;) {
        const size_t at = (written + i) % kMailbox, run = std::min(n - i, kMailbox - at);
        std::memcpy(box.bytes + at, data.data() + done + i, run);
        i += run;
      }
      if (n > 0) box.written.store(written + n);
      return n;
    });
  }

  void Recv(std::span<std::byte> data, int from, Deadline deadline) override {
    Mailbox& box = BoxOf(from, rank());
    const auto empty = [&] { return box.written.load() == box.read.load(); };
    Move("receive", from, empty, data.size(), deadline, [&](size_t done) {
      const uint64_t read = box.read.load();
      const size_t n = std::min<size_t>(data.size() - done, box.written.load() - read);
      for (size_t i = 0; i < n;) {
        const size_t at = (read + i) % kMailbox, run = std::min(n - i, kMailbox - at);
        std::memcpy(data.data() + done + i, box.bytes + at, run);
        i += run;
      }
      if (n > 0) box.read.store(read + n);
      return n;
    });
  }

  void Barrier(Deadline deadline) override { group_.Barrier("barrier", deadline); }
  void Abort() noexcept override { group_.Abort(); }

 private:
  // Those of the ranks that are wanted.
  template <typename Wants>
  void GatherParts(std::span<float> data, const Wants& wants, Deadline deadline) {
    const size_t step = kSlot / sizeof(float);
    const size_t longest = PartOf(data.size(), 0, size()).size();
    for (size_t at = 0; at < longest; at += step) {
      const auto piece = [&](int part) {
        const Range range = PartOf(data.size(), part, size());
        const size_t begin = std::min(range.begin + at, range.end);
        return data.subspan(begin, std::min(step, range.end - begin));
      };
      Stage(std::as_bytes(piece(rank())));
      group_.Barrier("all-gather", deadline);
      for (int r = 0; r < size(); ++r) {
        if (r != rank() && wants(r)) std::memcpy(piece(r).data(), Slot(r), piece(r).size_bytes());
      }
    }
  }

  template <typename T>
  void AllReduceAny(std::span<T> data, Deadline deadline) {
    for (size_t at = 0; at < data.size(); at += kSlot / sizeof(T)) {
      const auto piece = data.subspan(at, std::min(kSlot / sizeof(T), data.size() - at));
      Stage(std::as_bytes(piece));
      group_.Barrier("all-reduce", deadline);
      if (piece.size_bytes() <= kSummedByAll) {
        SumInOrder(Slots<T>(0), piece.data(), piece.size());
        continue;
      }
      const Range mine = PartOf(piece.size(), rank(), size());
      SumInOrder(Slots<T>(mine.begin), reinterpret_cast<T*>(Slot(rank())) + mine.begin, mine.size());
      group_.Barrier("all-reduce", deadline);
      for (int r = 0; r < size(); ++r) {
        const Range part = PartOf(piece.size(), r, size());
        std::memcpy(piece.data() + part.begin, reinterpret_cast<T*>(Slot(r)) + part.begin,
                    part.size() * sizeof(T));
      }
    }
  }

  // Copies into this rank's next slot.
  void Stage(std::span<const std::byte> piece) {
    turn_ ^= 1;
    std::memcpy(Slot(rank()), piece.data(), piece.size());
  }

  std::byte* Slot(int r) const { return staging_.data() + (2 * static_cast<size_t>(r) + turn_) * kSlot; }

  // Every rank's slot from element `offset`.
  template <typename T>
  std::vector<const T*> Slots(size_t offset) const {
    std::vector<const T*> slots;
    for (int r = 0; r < size(); ++r) slots.push_back(reinterpret_cast<const T*>(Slot(r)) + offset);
    return slots;
  }

  Mailbox& BoxOf(int from, int to) const { return mailboxes_[from * size() + to]; }

  // Calls `some(bytes done so far)`, which moves what it can and says how much, until all `count` bytes are
  // through. `stuck()`: nothing can be moved until the peer does something.
  template <typename Stuck, typename Some>
  void Move(const char* operation, int peer, const Stuck& stuck, size_t count, Deadline deadline,
            const Some& some) {
    size_t done = 0;
    if (count == 0) return;
    group_.Wait(
        operation,
        [&] {
          const size_t moved = some(done);
          if (moved == 0) return Look::kIdle;
          group_.Wake();
          done += moved;
          return done == count ? Look::kDone : Look::kProgress;
        },
        [&](int r) { return r == peer && stuck(); }, deadline);
  }

  LocalGroup& group_;
  SharedSegment staging_;
  SharedSegment mailboxes_segment_;
  Mailbox* mailboxes_ = nullptr;
  size_t turn_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> MakeLocalCommunicator(LocalGroup& group, Deadline deadline) {
  return std::make_unique<LocalCommunicator>(group, deadline);
}

}  // namespace lockstep::trainer::collectives
