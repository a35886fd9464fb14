#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

// trace/: what a process did when, over its last steps, for people to look at (`lockstep run --trace`,
// docs/watching.md). Whoever does something worth a bar in the picture has a Recorder* that is null when
// nobody asked, and makes a Scope around it; the train loop says which step it is, and at the end what there
// is goes into a file (part_file.h) that the launcher puts together with the other ranks'.
//
// Anyone in the trainer may use it; it knows nobody.
namespace lockstep::trainer::trace {

// CLOCK_MONOTONIC, which all processes of a machine share.
using Clock = std::chrono::steady_clock;

// A line of the picture. What is on one nests or follows one another, so each belongs to one thread at a
// time.
enum class Track {
  kSteps,          // "step"
  kCompute,        // "forward", "backward", "update", "wait", "evaluate", "checkpoint"
  kCommunication,  // "all-reduce" of a bucket, and what other strategies exchange
  kData,           // "data wait"
  kPreparation,    // "prepare batch", on a thread of its own
};
inline constexpr int kTracks = 5;
std::string_view NameOf(Track track);  // "compute"

struct Span {
  const char* name = "";  // outlives the recorder: a literal
  Track track = Track::kCompute;
  Clock::time_point begin{};
  Clock::time_point end{};
  int64_t step = 0;     // from 1; 0: the one at hand
  int64_t bucket = -1;  // which piece of the gradients, from 0; -1: none
  int64_t bytes = -1;   // that were moved; -1: none
};

// Keeps the spans of the last steps. Memory is bounded, and taken once. Safe from several threads.
class Recorder {
 public:
  struct Options {
    int64_t steps = 20;           // at least 1
    size_t most_spans = 1 << 18;  // whatever the steps: of 56 bytes each
  };

  explicit Recorder(const Options& options);

  // Spans that follow belong to it. Steps only grow.
  void BeginStep(int64_t step);
  void Add(Span span) noexcept;

  // Of the last Options::steps steps, or of as many as there was room for, in the order in which they were
  // added. A step of which some had to go is left out, unless it is the only one.
  std::vector<Span> Last() const;

 private:
  const Options options_;
  const size_t room_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<Span> ring_;
  size_t next_ = 0;           // where the oldest is, once it is full
  int64_t step_ = 0;          // at hand
  int64_t last_ = 0;          // the highest of any span
  int64_t overwritten_ = -1;  // likewise, of those that had to go
};

// A span from here to the end of the block. Without a recorder it costs a branch.
class Scope {
 public:
  struct What {
    int64_t bucket = -1;
    int64_t bytes = -1;
  };

  Scope(Recorder* recorder, Track track, const char* name) : Scope(recorder, track, name, What()) {}
  Scope(Recorder* recorder, Track track, const char* name, What what) : recorder_(recorder) {
    if (recorder_ != nullptr) {
      span_ = {
          .name = name, .track = track, .begin = Clock::now(), .bucket = what.bucket, .bytes = what.bytes};
    }
  }
  ~Scope() {
    if (recorder_ == nullptr) return;
    span_.end = Clock::now();
    recorder_->Add(span_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Recorder* const recorder_;
  Span span_;
};

}  // namespace lockstep::trainer::trace
