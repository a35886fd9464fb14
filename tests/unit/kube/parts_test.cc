#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/kube/rate_limit.h"
#include "launcher/kube/resource.h"
#include "launcher/kube/time.h"

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

TEST(TimeTest, IsWrittenAndReadAsTheApiDoes) {
  const auto time = ParseTime("2026-01-31T12:00:01.25+02:00");
  ASSERT_TRUE(time);
  EXPECT_EQ(FormatMicroTime(*time), "2026-01-31T10:00:01.250000Z");
  EXPECT_EQ(FormatTime(*time), "2026-01-31T10:00:01Z");
  EXPECT_EQ(ParseTime(FormatMicroTime(*time)), time);
  EXPECT_EQ(FormatTime(*ParseTime("2024-02-29T23:59:59Z")), "2024-02-29T23:59:59Z");
  for (const char* wrong : {"", "2026-01-31", "2026-02-30T00:00:00Z", "2026-01-31T25:00:00Z",
                            "2026-01-31T12:00:00", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00Zx"}) {
    EXPECT_FALSE(ParseTime(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::kube
