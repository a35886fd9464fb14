#include "launcher/operator/controller.h"

#include <gtest/gtest.h>

#include <deque>

namespace lockstep::op {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Ten thousand jobs that all have news, always.
TEST(ProgressWritesTest, AreAtMostFiftyInAnySecond) {
  const kube::RateLimit::Clock::time_point begin{};
  kube::RateLimit limit(kProgressWritesPerSecond, kProgressWritesAtOnce, begin);
  std::deque<kube::RateLimit::Clock::time_point> last;
  size_t most = 0;
  int written = 0;
  for (auto now = begin; now < begin + seconds(20); now += milliseconds(1)) {
    // Idle for a while, so that what is saved up is spent at once.
    if (now > begin + seconds(5) && now < begin + seconds(10)) continue;
    for (int job = 0; job < 3; ++job) {
      if (!limit.Reserve(now, now)) continue;
      last.push_back(now);
      ++written;
    }
    while (!last.empty() && last.front() <= now - seconds(1)) last.pop_front();
    most = std::max(most, last.size());
  }
  EXPECT_LE(most, 50U);
  EXPECT_GE(written, 15 * 44) << "and hardly fewer, where there is more to say";
}

}  // namespace
}  // namespace lockstep::op
