#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/paths.h"
#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"

// `lockstep run` with Lockstep's own trainer on GPUs: those of a recorded machine for the launcher, and of
// tests/support/cuda_on_host for the trainer.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using trainer::checkpoint::Snapshot;

constexpr char kTable[] = LOCKSTEP_BIN_DIR "/../tests/unit/placement/eight_h100/libnvidia-ml.so.1";
constexpr char kPlugin[] = LOCKSTEP_BIN_DIR "/liblockstep-cuda-on-host.so";
constexpr char kUuids[] = "GPU-00000000-4e2c-5a1b-9d3f-0123456789ab,GPU-11111111-4e2c-5a1b-9d3f-0123456789ab";

class GpuTrainingTest : public ::testing::Test {
 protected:
  nlohmann::json Spec(const Digits& digits, const nlohmann::json& devices) const {
    nlohmann::json spec = DigitsSpec(digits);
    spec["devices"] = devices;
    spec["devices"]["type"] = "GPU";
    spec.erase("processesPerReplica");
    return spec;
  }
  nlohmann::json OnTwo(const Digits& digits) const { return Spec(digits, {{"visible", {"0", "1"}}}); }
  JobRun::Options Machine() const {
    return {.environment = {{"LOCKSTEP_NVML_LIBRARY", kTable},
                            {"LOCKSTEP_CUDA_PLUGIN", kPlugin},
                            {"LOCKSTEP_DEVICE_LEDGER", folder_.File("ledger")},
                            {"CUDA_ON_HOST_UUIDS", kUuids},
                            {"CUDA_ON_HOST_MEMORY", "268435456"}}};
  }

  const TemporaryFolder folder_;
};

TEST_F(GpuTrainingTest, DigitsReach95PercentOnTwoGpusOverNccl) {
  nlohmann::json spec = OnTwo({.samples = 20000, .epochs = 3});
  spec["trainer"]["model"]["layers"][0]["units"] = 128;
  spec["trainer"]["optimizer"]["learningRate"] = 0.005;
  JobRun run(spec, Machine());
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_GT(TestAccuracy(run.Log(0)), 0.95) << run.Log(0);
  EXPECT_THAT(run.Log(0), HasSubstr("gradients: NCCL "));
}

TEST_F(GpuTrainingTest, VirtualDevicesOfOneGpuReachWhatWholeOnesDo) {
  const Digits digits{.samples = 4096, .epochs = 2};
  JobRun whole(OnTwo(digits), Machine());
  ASSERT_EQ(whole.Wait(), 0) << whole.launcher().err();
  JobRun divided(Spec(digits, {{"visible", {"0"}}, {"virtual", {{"perDevice", 2}, {"memoryLimit", "64Mi"}}}}),
                 Machine());
  ASSERT_EQ(divided.Wait(), 0) << divided.launcher().err();
  EXPECT_THAT(divided.Log(0),
              HasSubstr("gradients: HierarchicalCopy over peer access, since ranks 0 and 1 share "));
  EXPECT_NEAR(TestAccuracy(divided.Log(0)), TestAccuracy(whole.Log(0)), 0.005);
}

TEST_F(GpuTrainingTest, AKilledRankCostsNothingButTime) {
  for (const char* ops : {"NCCL", "HierarchicalCopy"}) {
    const auto job = [&](const std::string& checkpoints) {
      nlohmann::json spec =
          OnTwo({.samples = 4096, .epochs = 6, .checkpoints = folder_.File(checkpoints), .every = 10});
      spec["strategy"] = {{"type", "Mirrored"}, {"crossDeviceOps", ops}};
      return spec;
    };
    const std::string name = std::string("whole-") + ops, disturbed_name = std::string("disturbed-") + ops;
    JobRun undisturbed(job(name), Machine());
    ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.launcher().err();

    JobRun disturbed(job(disturbed_name), Machine());
    ASSERT_TRUE(WaitUntil([&] {
      const auto status = disturbed.Status();
      return disturbed.launcher().HasEnded() ||
             (status.is_object() && status.contains("progress") && status["progress"].value("step", 0) >= 25);
    })) << disturbed.launcher().err();
    const auto pids = disturbed.Pids();
    ASSERT_EQ(pids.size(), 2u) << disturbed.launcher().err();
    ::kill(pids[1], SIGKILL);
    ASSERT_EQ(disturbed.Wait(), 0) << disturbed.launcher().err();
    EXPECT_THAT(disturbed.launcher().err(), HasSubstr("restarting all ranks (1 of 3)"));

    const auto want = NewestSnapshot(folder_.File(name)), got = NewestSnapshot(folder_.File(disturbed_name));
    ASSERT_TRUE(want && got);
    EXPECT_EQ(got->step, want->step);
    EXPECT_EQ(got->parameters, want->parameters) << ops;
    EXPECT_EQ(got->slots, want->slots) << ops;
  }
}

TEST_F(GpuTrainingTest, AStoppedJobGoesOnWhereItWas) {
  const auto job = [&](const std::string& checkpoints) {
    return OnTwo({.samples = 4096, .epochs = 6, .checkpoints = folder_.File(checkpoints), .every = 20});
  };
  JobRun undisturbed(job("whole"), Machine());
  ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.launcher().err();
  {
    JobRun stopped(job("stopped"), Machine());
    ASSERT_TRUE(WaitUntil([&] {
      const auto status = stopped.Status();
      return status.is_object() && status.contains("progress") && status["progress"].value("step", 0) >= 10;
    })) << stopped.launcher().err();
    stopped.launcher().Signal(SIGTERM);
    EXPECT_EQ(stopped.Wait(), 75) << stopped.launcher().err();
  }
  JobRun again(job("stopped"), Machine());
  ASSERT_EQ(again.Wait(), 0) << again.launcher().err();
  const auto want = NewestSnapshot(folder_.File("whole")), got = NewestSnapshot(folder_.File("stopped"));
  ASSERT_TRUE(want && got);
  EXPECT_EQ(got->step, want->step);
  EXPECT_EQ(got->parameters, want->parameters);
}

}  // namespace
}  // namespace lockstep::testing
