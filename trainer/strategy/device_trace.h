#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/backend/device_backend.h"
#include "trainer/trace/recorder.h"

namespace lockstep::trainer::strategy {

// One step in so many is taken apart by events. More than there are in flight: the events are read by then.
inline constexpr uint64_t kMeasureEvery = 16;

// What a device's streams did when, for a trace: events around what is enqueued, whose times on the device
// are laid over the host's clock when the host has seen that a step is done.
//
// The host sees that a little after it was, and how much after differs from step to step. So a step's end is
// where the device's clock puts it, counted from the end of the one before, and never later than the host saw
// it: after a few steps it is off by what the host was late at its quickest.
//
// Used by one thread. Steps are begun, enqueued and finished in order.
class DeviceTrace {
 public:
  // Both outlive it. `in_flight`: steps begun and not finished, at most.
  DeviceTrace(DeviceBackend& device, trace::Recorder& recorder, int in_flight);

  // What is enqueued from now on belongs to this step.
  void BeginStep(int64_t step);
  // All of it is enqueued, and whatever other streams do of it the compute stream has been made to wait for.
  void EndStep();
  // The oldest step is done, as the host has just seen: its spans are recorded.
  void FinishStep();

  // Around what is enqueued on a stream during its life, within a step; between steps it does nothing. On one
  // track they nest. Without a trace it costs a branch.
  class Scope {
   public:
    Scope(DeviceTrace* trace, trace::Track track, Stream stream, const char* name,
          trace::Scope::What what = {});
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceTrace* const trace_;
    const Stream stream_;
    size_t mark_ = 0;
  };

 private:
  struct Mark {
    trace::Span span;
    std::unique_ptr<DeviceEvent> begin, end;
    int64_t begun = 0, ended = 0;  // in the order of all of a step's begins and ends
  };
  // Its marks are used again, with their events.
  struct Step {
    int64_t number = 0;
    std::vector<Mark> marks;
    size_t used = 0;
    int64_t order = 0;
    std::unique_ptr<DeviceEvent> done;
  };

  Step& current() { return steps_[begun_ % steps_.size()]; }
  void PlaceOnClock(const Step& step);
  void Record(Step& step) const;

  DeviceBackend& device_;
  trace::Recorder& recorder_;
  std::vector<Step> steps_;  // one more than in flight: the end of the one before is needed
  bool in_step_ = false;
  uint64_t begun_ = 0, finished_ = 0;  // steps; the one at hand is begun_ until it ends
  trace::Clock::time_point done_{};    // of the last step that was finished
};

}  // namespace lockstep::trainer::strategy
