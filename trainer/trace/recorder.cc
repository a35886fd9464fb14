#include "trainer/trace/recorder.h"

#include <algorithm>

namespace lockstep::trainer::trace {
namespace {

// More than most steps have; where a step has more, fewer steps are kept.
constexpr size_t kSpansAStep = 4096;

}  // namespace

std::string_view NameOf(Track track) {
  switch (track) {
    case Track::kSteps:
      return "steps";
    case Track::kCompute:
      return "compute";
    case Track::kCommunication:
      return "communication";
    case Track::kData:
      return "data";
    case Track::kPreparation:
      return "data preparation";
  }
  return "?";
}

Recorder::Recorder(const Options& options)
    : options_(options),
      room_(std::clamp<size_t>(static_cast<size_t>(std::min<int64_t>(options.steps, 1 << 16)) * kSpansAStep,
                               1, std::max<size_t>(options.most_spans, 1))) {
  ring_.reserve(room_);
}

void Recorder::BeginStep(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void Recorder::Add(Span span) noexcept {
  const std::lock_guard lock(mutex_);
  if (span.step == 0) span.step = step_;
  last_ = std::max(last_, span.step);
  if (ring_.size() < room_) {
    ring_.push_back(span);  // (There is room: nothing is allocated.)
    return;
  }
  overwritten_ = std::max(overwritten_, ring_[next_].step);
  ring_[next_] = span;
  next_ = (next_ + 1) % room_;
}

std::vector<Span> Recorder::Last() const {
  const std::lock_guard lock(mutex_);
  // (What was before the first step is of none.)
  const int64_t before = std::max({int64_t{0}, last_ - options_.steps, std::min(overwritten_, last_ - 1)});
  std::vector<Span> spans;
  for (size_t i = 0; i < ring_.size(); ++i) {
    const Span& span = ring_[(next_ + i) % ring_.size()];
    if (span.step > before) spans.push_back(span);
  }
  return spans;
}

}  // namespace lockstep::trainer::trace
