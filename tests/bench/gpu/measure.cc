#include "tests/bench/gpu/measure.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::bench {

void Print(const char* what, double value) { std::printf("%s %.6g\n", what, value); }

double DeviceSeconds(trainer::DeviceBackend& device, int count, const std::function<void()>& enqueue) {
  constexpr int kRounds = 5;
  const auto start = device.MakeEvent(true), end = device.MakeEvent(true);
  double best = 1e30;
  for (int round = 0; round <= kRounds; ++round) {
    start->Record(device.compute_stream());
    for (int i = 0; i < count; ++i) enqueue();
    end->Record(device.compute_stream());
    device.Synchronize();
    if (round > 0) best = std::min(best, end->SecondsSince(*start) / count);
  }
  return best;
}

}  // namespace lockstep::bench
