#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/optimizer/optimizer.h"

namespace lockstep::trainer::strategy {

// What the ranks of a machine note while they update what they share, so that those who live know how far a
// killed one came, and can do what it left undone. The flat buffers are updated piece by piece, each piece by
// one rank: it keeps the piece as it was, says so, updates in place, says so, and says when all is done. Kept
// are the optimizer's slots, and the parameters where there is one copy of them. Where they are updated in a
// second one, what all read is still as it was.
//
// Who reads a journal sees what was written before the writer's process ended, in that order, whatever the
// moment.
class Journal {
 public:
  // Collective. `pieces`, the same on every rank; of each, `buffers` are kept. A group of one keeps nothing:
  // nobody could go on with it.
  void Create(collectives::LocalGroup& group, std::vector<collectives::Range> pieces, int buffers,
              collectives::Deadline deadline);

  const std::vector<collectives::Range>& pieces() const { return pieces_; }

  // Around the update of a piece in step `turn` (counted from 0), by the rank that does it.
  void Begin(size_t piece, float* const* buffers);
  void Written();  // all that was to be updated in place; not needed where nothing comes before Done
  void Done(size_t piece, uint64_t turn);

  enum class State {
    kUntouched,
    kBegun,    // `kept` is the piece of each buffer as it was, one after the other
    kWritten,  // only the parameters that all read may be half-way
    kDone,
  };
  struct Found {
    State state = State::kUntouched;
    const float* kept = nullptr;
  };
  // While nobody updates any more.
  Found Find(size_t piece, uint64_t turn) const;

 private:
  struct Note;

  float* KeptBy(int rank) const;

  collectives::LocalGroup* group_ = nullptr;
  std::vector<collectives::Range> pieces_;
  int buffers_ = 0;
  size_t longest_ = 0;
  Note* notes_ = nullptr;                  // by local rank
  std::span<std::atomic<uint64_t>> done_;  // by piece: steps that it has been updated in
  collectives::SharedSegment notes_segment_, kept_segment_;
};

// What an update of a piece may take that is on its way when others find that a rank is lost.
inline constexpr std::chrono::seconds kRest{3};

// Floats that are updated at once: few enough that what is kept of them stays in the core's cache, and that
// others who wait for them, or must update them again, lose little.
inline constexpr size_t kPiece = 16 * 1024;

// [0, total) in pieces of `longest` floats, the last one shorter.
std::vector<collectives::Range> CutEvenly(size_t total, size_t longest);

}  // namespace lockstep::trainer::strategy
