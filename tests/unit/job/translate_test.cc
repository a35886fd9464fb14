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

// What only follows from another's failure is told from it by the codes of our own trainer.
TEST(FailureOfTest, KeepsTheLastLinesCutAsTheyAreForAnotherLauncher) {
  const process::ExitReport report{.exit_code = 1, .last_lines = {"short", std::string(4096, 'x')}};
  const auto failure = FailureOf(report, "");
  ASSERT_EQ(failure.last_lines.size(), 2u);
  EXPECT_EQ(failure.last_lines[0], "short");
  EXPECT_EQ(failure.last_lines[1].size(), rendezvous::kMaxLastLineBytes);
  EXPECT_EQ(TelemetryFailureOf(failure).last_lines, failure.last_lines);
}

TEST(FailureOfTest, SaysWhoseExitCodeItIs) {
  process::ExitReport report = Aborted();
  report.own_trainer = true;
  const auto failure = FailureOf(report, "");
  EXPECT_TRUE(failure.own_trainer);
  EXPECT_EQ(failure.signal, SIGABRT);
  report.own_trainer = false;
  EXPECT_FALSE(FailureOf(report, "").own_trainer);
}

TEST(IsElasticTest, NeedsFewerThanAll) {
  spec::TrainingJob job;
  job.roles = {{.name = "worker", .replicas = 3}};
  EXPECT_FALSE(IsElastic(job));
  job.run_policy.min_replicas = 3;
  EXPECT_FALSE(IsElastic(job));
  job.run_policy.min_replicas = 2;
  EXPECT_TRUE(IsElastic(job));
}

// The restart policy sees a signal, and not an exit code of the trainer's own.
TEST(ExitOfTest, KeepsASignalThatCameOfALostGpu) {
  const auto back = ExitOf(FailureOf(Aborted(), "", /*device_failed=*/true));
  EXPECT_EQ(back.reason, process::ExitReason::kSignal);
  EXPECT_EQ(back.signal, SIGABRT);
  process::ExitReport exited = Aborted();
  exited.exit_code = 13;
  exited.signal = 0;
  exited.reason = process::ExitReason::kError;
  EXPECT_EQ(ExitOf(FailureOf(exited, "", true)).reason, process::ExitReason::kError);
}

TEST(ExitOfTest, KeepsTheWordsOfTheOneThatSawIt) {
  process::ExitReport aborted = Aborted();
  aborted.last_lines = {"step 7", "no room"};
  const auto back = ExitOf(FailureOf(aborted, "no progress for 60 s, then killed"));
  EXPECT_EQ(process::Decide({back}, {.max_restarts = 0}, {}, {}).why,
            process::RankInWords(aborted) +
                ": no progress for 60 s, then killed; 0 restarts are used up "
                "(maxRestarts); its last line: no room");
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
