#include "trainer/strategy/journal.h"

#include <algorithm>
#include <cstring>

namespace lockstep::trainer::strategy {

// The piece that the rank is at, from 1, and whether it is written; 0: at none. Stored with
// memory_order_seq_cst, which no store passes, not even those of StreamCopy.
struct alignas(64) Journal::Note {
  std::atomic<uint64_t> at;
};

namespace {

constexpr uint64_t At(size_t piece, bool written) { return (uint64_t{piece} + 1) << 1 | (written ? 1 : 0); }

}  // namespace

void Journal::Create(collectives::LocalGroup& group, std::vector<collectives::Range> pieces, int buffers,
                     collectives::Deadline deadline) {
  group_ = &group;
  pieces_ = std::move(pieces);
  buffers_ = buffers;
  longest_ = 0;
  for (const collectives::Range& piece : pieces_) longest_ = std::max(longest_, piece.size());
  const auto ranks = static_cast<size_t>(group.size());
  notes_segment_ = group.CreateSegment(
      "journal", ranks * sizeof(Note) + pieces_.size() * sizeof(std::atomic<uint64_t>), deadline);
  notes_ = notes_segment_.View<Note>(0, ranks).data();
  done_ = notes_segment_.View<std::atomic<uint64_t>>(ranks * sizeof(Note), pieces_.size());
  if (ranks == 1 || buffers == 0) return;
  kept_segment_ =
      group.CreateSegment("kept", ranks * static_cast<size_t>(buffers) * longest_ * sizeof(float), deadline);
}

float* Journal::KeptBy(int rank) const {
  const size_t each = static_cast<size_t>(buffers_) * longest_;
  return kept_segment_.View<float>(static_cast<size_t>(rank) * each * sizeof(float), each).data();
}

void Journal::Begin(size_t piece, float* const* buffers) {
  if (group_->size() == 1) return;
  const auto [begin, end] = pieces_[piece];
  for (int i = 0; i < buffers_; ++i) {
    std::copy_n(buffers[i] + begin, end - begin,
                KeptBy(group_->rank()) + static_cast<size_t>(i) * (end - begin));
  }
  notes_[group_->rank()].at.store(At(piece, false));
}

void Journal::Written() {
  if (group_->size() == 1) return;
  Note& note = notes_[group_->rank()];
  note.at.store(note.at.load(std::memory_order_relaxed) | 1);
}

void Journal::Done(size_t piece, uint64_t turn) {
  done_[piece].store(turn + 1, std::memory_order_release);
  if (group_->size() > 1) notes_[group_->rank()].at.store(0, std::memory_order_release);
}

Journal::Found Journal::Find(size_t piece, uint64_t turn) const {
  if (done_[piece].load() == turn + 1) return {.state = State::kDone};
  for (int r = 0; r < group_->size(); ++r) {
    const uint64_t at = notes_[r].at.load();
    if (at == At(piece, true)) return {.state = State::kWritten};
    if (at == At(piece, false)) {
      return {.state = State::kBegun, .kept = buffers_ == 0 ? nullptr : KeptBy(r)};
    }
  }
  return {};
}

std::vector<collectives::Range> CutEvenly(size_t total, size_t longest) {
  std::vector<collectives::Range> pieces;
  for (size_t begin = 0; begin < total; begin += longest) {
    pieces.push_back({begin, std::min(total, begin + longest)});
  }
  return pieces;
}

}  // namespace lockstep::trainer::strategy
