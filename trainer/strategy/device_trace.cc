#include "trainer/strategy/device_trace.h"

#include <algorithm>
#include <chrono>
#include <exception>

namespace lockstep::trainer::strategy {
namespace {

using trace::Clock;

// More than the clocks of a device and of its host drift apart.
constexpr double kDrift = 1e-4;

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

DeviceTrace::Scope::Scope(DeviceTrace* trace, trace::Track track, Stream stream, const char* name,
                          trace::Scope::What what)
    : trace_(trace != nullptr && trace->in_step_ ? trace : nullptr), stream_(stream) {
  if (trace_ == nullptr) return;
  Step& step = trace_->current();
  mark_ = step.used++;
  if (mark_ == step.marks.size()) {
    step.marks.push_back({.begin = trace_->device_.MakeEvent(true), .end = trace_->device_.MakeEvent(true)});
  }
  Mark& mark = step.marks[mark_];
  mark.span = {.name = name, .track = track, .step = step.number, .bucket = what.bucket, .bytes = what.bytes};
  mark.begun = step.order++;
  mark.begin->Record(stream);
}

DeviceTrace::Scope::~Scope() {
  if (trace_ == nullptr) return;
  Mark& mark = trace_->current().marks[mark_];
  mark.ended = trace_->current().order++;
  try {
    mark.end->Record(stream_);
  } catch (const std::exception&) {
    // Whoever enqueues next is told what is wrong with the device.
  }
}

DeviceTrace::DeviceTrace(DeviceBackend& device, trace::Recorder& recorder, int in_flight)
    : device_(device), recorder_(recorder), steps_(static_cast<size_t>(in_flight) + 1) {
  for (Step& step : steps_) step.done = device_.MakeEvent(true);
}

void DeviceTrace::BeginStep(int64_t step) {
  current().number = step;
  current().used = 0;
  current().order = 0;
  in_step_ = true;
}

void DeviceTrace::EndStep() {
  current().done->Record(device_.compute_stream());
  ++begun_;
  in_step_ = false;
}

void DeviceTrace::FinishStep() {
  Step& step = steps_[finished_ % steps_.size()];
  PlaceOnClock(step);
  Record(step);
  ++finished_;
}

void DeviceTrace::PlaceOnClock(const Step& step) {
  const Clock::time_point seen = Clock::now();
  if (finished_ == 0) {
    done_ = seen;
    return;
  }
  const Step& before = steps_[(finished_ - 1) % steps_.size()];
  const double took = step.done->SecondsSince(*before.done);
  done_ = std::min(seen, done_ + Duration(took * (1 + kDrift)));
}

// Times are rounded on the way, so what nests or follows by the order in which it was enqueued is made to.
void DeviceTrace::Record(Step& step) const {
  std::array<std::vector<const Mark*>, trace::kTracks> open;
  std::array<Clock::time_point, trace::kTracks> closed{};
  for (size_t i = 0; i < step.used; ++i) {
    Mark& mark = step.marks[i];
    trace::Span& span = mark.span;
    auto& around = open[static_cast<size_t>(span.track)];
    Clock::time_point& least = closed[static_cast<size_t>(span.track)];
    for (; !around.empty() && around.back()->ended < mark.begun; around.pop_back()) {
      least = std::max(least, around.back()->span.end);
    }
    span.begin = done_ - Duration(step.done->SecondsSince(*mark.begin));
    span.end = done_ - Duration(step.done->SecondsSince(*mark.end));
    if (!around.empty()) {
      span.begin = std::max(span.begin, around.back()->span.begin);
      span.end = std::min(span.end, around.back()->span.end);
    }
    span.begin = std::max(span.begin, least);
    span.end = std::max(span.end, span.begin);
    around.push_back(&mark);
    recorder_.Add(span);
  }
}

}  // namespace lockstep::trainer::strategy
