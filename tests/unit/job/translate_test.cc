#include "launcher/job/translate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::job {
namespace {

using ::testing::HasSubstr;

process::ExitReport Aborted() {
  process::ExitReport report;
  report.rank = 2;
  report.local_rank = 2;
  report.exit_code = 128 + SIGABRT;
  report.signal = SIGABRT;
  report.reason = process::ExitReason::kSignal;
  return report;
}

TEST(FailureOfTest, TellsWhatTheDriverSaid) {
  process::ExitReport report = Aborted();
  report.device_trouble = "GPU 2 (GPU-aaaa): Xid 31 (GPU memory page fault)";
  const auto erred = FailureOf(report, "");
  EXPECT_EQ(erred.reason, "Signal");
  EXPECT_THAT(erred.message, HasSubstr("; GPU 2 (GPU-aaaa): Xid 31 (GPU memory page fault)"));
  const auto lost = FailureOf(report, "", /*device_failed=*/true);
  EXPECT_EQ(lost.reason, "DeviceFailed");
  EXPECT_EQ(RestartReasonOf(lost.reason), telemetry::RestartReason::kDeviceFailed);
}

// The restart policy sees a signal, and not an exit code of the trainer's own.
TEST(ExitOfTest, KeepsASignalThatCameOfALostGpu) {
  const auto back = ExitOf(FailureOf(Aborted(), "", /*device_failed=*/true), /*own_trainer=*/true);
  EXPECT_EQ(back.reason, process::ExitReason::kSignal);
  EXPECT_EQ(back.signal, SIGABRT);
  process::ExitReport exited = Aborted();
  exited.exit_code = 13;
  exited.signal = 0;
  exited.reason = process::ExitReason::kError;
  EXPECT_EQ(ExitOf(FailureOf(exited, "", true), true).reason, process::ExitReason::kError);
}

TEST(RankDeviceOfTest, SaysThePolicyOfAGpuAndNoneOfTheCpu) {
  placement::ProcessDevices gpu{.type = spec::DeviceType::kGpu, .devices = {"GPU-aaaa"}, .shared = true};
  gpu.memory = {.policy = spec::MemoryPolicy::kFraction, .limit = 500, .fraction = 0.5, .mps = true};
  const telemetry::RankDevice device = RankDeviceOf(gpu);
  EXPECT_EQ(device.type, "GPU");
  EXPECT_TRUE(device.shared);
  EXPECT_EQ(device.memory_policy, "Fraction");
  EXPECT_EQ(device.memory_limit, 500);
  EXPECT_EQ(device.memory_fraction, 0.5);
  EXPECT_TRUE(device.held_by_mps);
  const telemetry::RankDevice cpu = RankDeviceOf({.type = spec::DeviceType::kCpu, .devices = {"CPU:0"}});
  EXPECT_EQ(cpu.type, "CPU");
  EXPECT_EQ(cpu.memory_policy, "");
}

}  // namespace
}  // namespace lockstep::job
