#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/kube/rate_limit.h"
#include "launcher/kube/resource.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RateLimitTest, GivesTurnsInOrder) {
  const auto start = RateLimit::Clock::now();
  RateLimit limit(10, 2, start);
  const auto far = start + seconds(100);
  EXPECT_EQ(limit.Reserve(start, far), start);
  EXPECT_EQ(limit.Reserve(start, far), start);
  EXPECT_EQ(limit.Reserve(start, far), start + milliseconds(100));
  EXPECT_EQ(limit.Reserve(start, far), start + milliseconds(200));
  EXPECT_EQ(limit.Reserve(start, start + milliseconds(250)), std::nullopt) << "and takes no turn for it";
  EXPECT_EQ(limit.Reserve(start, far), start + milliseconds(300));
  // A second later the bucket is full again, and no fuller.
  const auto later = start + seconds(10);
  EXPECT_EQ(limit.Reserve(later, later), later);
  EXPECT_EQ(limit.Reserve(later, later), later);
  EXPECT_EQ(limit.Reserve(later, later), std::nullopt);
}

TEST(RateLimitTest, MayBeNone) {
  const auto start = RateLimit::Clock::now();
  RateLimit limit(0, 1, start);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.Reserve(start, start), start);
}

TEST(ResourceTest, HasThePathsOfTheApi) {
  EXPECT_EQ(PathOf(kPods, {.space = "a", .name = "b"}, "log"), "/api/v1/namespaces/a/pods/b/log");
  EXPECT_EQ(PathOf(kTrainingJobs, {}), "/apis/lockstep.dev/v1alpha1/trainingjobs");
  EXPECT_EQ(PathOf(kNodes, {.name = "n"}), "/api/v1/nodes/n");
  EXPECT_EQ(PathOf(kPods, {.space = "../x", .name = "a b"}), "/api/v1/namespaces/..%2Fx/pods/a%20b");
}

}  // namespace
}  // namespace lockstep::kube
