#include "launcher/health/xid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/telemetry/device_snapshot.h"

namespace lockstep::health {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(XidTest, TellsAGpuThatIsGoneFromAProcessThatErred) {
  for (const int xid : {46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143}) {
    EXPECT_EQ(EffectOf(xid), XidEffect::kGpu) << xid;
  }
  for (const int xid : {13, 31, 43, 45, 63, 94}) EXPECT_EQ(EffectOf(xid), XidEffect::kProcess) << xid;
  // Nothing is taken away from a job for what is not known.
  for (const int xid : {0, -1, 7777}) EXPECT_EQ(EffectOf(xid), XidEffect::kProcess) << xid;
}

TEST(XidTest, SaysItInWords) {
  EXPECT_EQ(DescribeXid(79), "Xid 79 (GPU has fallen off the bus)");
  EXPECT_EQ(DescribeXid(7777), "Xid 7777");
}

TEST(ThrottleReasonsTest, NamesWhatHoldsAGpuBack) {
  EXPECT_THAT(ThrottleReasons(0x4 | 0x20), ElementsAre("PowerCap", "ThermalSoftware"));
  EXPECT_THAT(ThrottleReasons(0x40 | 0x80 | 0x8),
              ElementsAre("ThermalHardware", "PowerBrake", "HardwareSlowdown"));
  // Idle, clocks that somebody set, sync boost, the display's clock.
  EXPECT_THAT(ThrottleReasons(0x1 | 0x2 | 0x10 | 0x100), IsEmpty());
}

TEST(ThrottleReasonsTest, KeepsToTheLabelsOfTheMetric) {
  for (const std::string_view reason : ThrottleReasons(~uint64_t{0})) {
    EXPECT_NE(std::find(telemetry::kThrottleReasons.begin(), telemetry::kThrottleReasons.end(), reason),
              telemetry::kThrottleReasons.end())
        << reason;
  }
  EXPECT_EQ(ThrottleReasons(~uint64_t{0}).size(), telemetry::kThrottleReasons.size());
}

}  // namespace
}  // namespace lockstep::health
