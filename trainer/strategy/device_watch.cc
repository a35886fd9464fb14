#include "trainer/strategy/device_watch.h"

#include <algorithm>
#include <thread>

namespace lockstep::trainer::strategy {
namespace {

using Clock = std::chrono::steady_clock;

// A step that is nearly done is looked for at once, another one less and less often.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kLongestPause = std::chrono::microseconds(200);
constexpr auto kLookAtPeers = std::chrono::milliseconds(50);

}  // namespace

DeviceWatch::DeviceWatch(const Options& options, collectives::Deadline deadline)
    : options_(options),
      segment_(options.group.CreateSegment(
          "control", sizeof(Member) * static_cast<size_t>(options.group.size()), deadline)),
      members_(segment_.View<Member>(0, static_cast<size_t>(options.group.size())).data()) {}

void DeviceWatch::Started(int64_t steps) { members_[options_.group.rank()].started.store(steps); }

void DeviceWatch::Await(DeviceEvent& event, const std::string& operation, int64_t steps) {
  const auto start = Clock::now();
  const auto everybody = [](int) { return true; };
  const auto behind = [&](int r) { return members_[r].started.load() < steps; };
  auto look_at_peers = start + kLookAtPeers;
  std::chrono::nanoseconds pause = std::chrono::microseconds(5);
  while (!event.Done()) {
    WithOthers(options_.check);
    const auto now = Clock::now();
    if (now >= look_at_peers) {
      look_at_peers = now + kLookAtPeers;
      options_.group.LookAtPeers(operation, everybody);
      if (now - start >= options_.timeout) {
        if (!options_.alone) options_.group.GiveUp(operation, behind, "the others' devices", now - start);
        throw DeviceLost(operation + ": " + options_.device.identity().name + " (" +
                         options_.device.identity().uuid + ") has not answered in time");
      }
    }
    if (now - start < kSpin) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, kLongestPause);
  }
}

}  // namespace lockstep::trainer::strategy
