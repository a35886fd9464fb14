#include "launcher/rendezvous/silence_watch.h"

#include <utility>

namespace lockstep::rendezvous {

SilenceWatch::SilenceWatch(Options options) : options_(std::move(options)), last_heard_(Clock::now()) {
  Arm(options_.silence);
}

SilenceWatch::~SilenceWatch() { options_.loop->Cancel(timer_); }

void SilenceWatch::Heard() {
  last_heard_ = Clock::now();
  excused_ = false;
}

void SilenceWatch::Arm(Clock::duration delay) {
  due_ = Clock::now() + delay;
  timer_ = options_.loop->After(delay, [this] { Check(); });
}

// The timer looks only when the peer can be silent long enough: cheaper than a new timer with every frame.
void SilenceWatch::Check() {
  timer_ = 0;
  const Clock::time_point now = Clock::now();
  if (now - last_heard_ < options_.silence) return Arm(options_.silence - (now - last_heard_));
  if (now - due_ > options_.heartbeat && !excused_) {
    excused_ = true;
    return Arm(2 * options_.heartbeat);
  }
  const std::function<void()> on_silent = options_.on_silent;
  on_silent();
}

std::string InSeconds(SilenceWatch::Clock::duration duration) {
  const auto tenths = std::chrono::round<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace lockstep::rendezvous
