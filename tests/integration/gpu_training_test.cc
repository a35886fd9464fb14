#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "tests/paths.h"
#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"
#include "trainer/checkpoint/ledger.h"

// `lockstep run` with Lockstep's own trainer on GPUs: those of a recorded machine for the launcher, and of
// tests/support/cuda_on_host for the trainer.
namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using trainer::checkpoint::Snapshot;

constexpr char kTable[] = LOCKSTEP_BIN_DIR "/../tests/unit/placement/eight_h100/libnvidia-ml.so.1";
constexpr char kPlugin[] = LOCKSTEP_BIN_DIR "/liblockstep-cuda-on-host.so";
constexpr char kUuids[] =
    "GPU-00000000-4e2c-5a1b-9d3f-0123456789ab,GPU-11111111-4e2c-5a1b-9d3f-0123456789ab,"
    "GPU-22222222-4e2c-5a1b-9d3f-0123456789ab";

const nlohmann::json kPipeline = {{"type", "Pipeline"},
                                  {"stages", {{{"first", 0}, {"last", 0}}, {{"first", 1}, {"last", 1}}}},
                                  {"microBatches", 4},
                                  {"schedule", "OneForwardOneBackward"}};

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
  // Two workers and, where wanted, the evaluator on GPUs, two servers on processors.
  nlohmann::json Served(const Digits& digits, bool evaluator) const {
    nlohmann::json spec = DigitsSpec(digits);
    spec.erase("processesPerReplica");
    spec.erase("devices");
    spec["strategy"] = {{"type", "ParameterServer"}};
    spec["runPolicy"] = {{"maxRestarts", 5}};
    spec["roles"] = {{{"name", "worker"}, {"devices", {{"type", "GPU"}, {"visible", {"0", "1"}}}}},
                     {{"name", "ps"}, {"processesPerReplica", 2}, {"devices", {{"type", "CPU"}}}}};
    if (evaluator) {
      spec["roles"].push_back({{"name", "evaluator"}, {"devices", {{"type", "GPU"}, {"visible", {"2"}}}}});
    }
    return spec;
  }
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

// Three stages on GPUs of their own, and two pipelines on four virtual devices; the weights to 2e-3. What of
// the samples a stage does not read it does not load.
TEST_F(GpuTrainingTest, PipelinesTrainAsOneProcessorDoes) {
  const auto finish = [&](nlohmann::json spec, const std::string& checkpoints,
                          const JobRun::Options& options) {
    spec["trainer"]["checkpoint"] = {{"directory", folder_.File(checkpoints)}};
    JobRun run(spec, options);
    EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
    return run.Log(0);
  };
  nlohmann::json plain = DigitsSpec({.processes = 1, .epochs = 2});
  nlohmann::json& layers = plain["trainer"]["model"]["layers"];
  layers.insert(layers.begin(), layers[0]);
  nlohmann::json augmented = plain;
  augmented["trainer"]["data"]["augmentation"] = {{"brightness", 0.1}};
  const auto on_gpus = [](nlohmann::json spec, int processes, nlohmann::json devices,
                          const nlohmann::json& strategy) {
    spec["processesPerReplica"] = processes;
    devices["type"] = "GPU";
    spec["devices"] = devices;
    spec["strategy"] = strategy;
    return spec;
  };
  finish(plain, "plain", {});
  finish(augmented, "augmented", {});
  const std::string three =
      finish(on_gpus(plain, 3, {{"visible", {"0", "1", "2"}}}, {{"type", "Pipeline"}}), "three", Machine());
  EXPECT_THAT(three, ContainsRegex("stage 0 \\(rank 0\\): dense; a micro-batch takes it .* ms"));
  EXPECT_THAT(three, HasSubstr("pipeline: stage 0 to the next over NCCL "));
  nlohmann::json strategy = kPipeline;
  strategy["stages"][1]["last"] = 2;
  const std::string four =
      finish(on_gpus(augmented, 4, {{"visible", {"0", "1"}}, {"virtual", {{"perDevice", 2}}}}, strategy),
             "four", Machine());
  EXPECT_THAT(four, HasSubstr("stage 1 (rank 1, 3): dense_1, dense_2"));
  EXPECT_THAT(four, HasSubstr("pipeline: stage 0 to the next over peer access"));
  for (const auto& [pipeline, alone] : {std::pair{"three", "plain"}, std::pair{"four", "augmented"}}) {
    const auto want = NewestSnapshot(folder_.File(alone)), got = NewestSnapshot(folder_.File(pipeline));
    ASSERT_TRUE(want && got);
    EXPECT_EQ(got->step, want->step);
    EXPECT_THAT(got->parameters, ::testing::Pointwise(::testing::FloatNear(2e-3f), want->parameters))
        << alone;
  }
}

TEST_F(GpuTrainingTest, ACheckpointOfAPipelineGoesOnMirroredAndBack) {
  const auto job = [&](const nlohmann::json& strategy, const std::string& checkpoints, int epochs) {
    nlohmann::json spec = OnTwo({.epochs = epochs, .checkpoints = folder_.File(checkpoints)});
    spec["strategy"] = strategy;
    return spec;
  };
  const nlohmann::json mirrored = {{"type", "Mirrored"}};
  JobRun whole(job(mirrored, "whole", 3), Machine());
  ASSERT_EQ(whole.Wait(), 0) << whole.launcher().err();
  const std::pair<nlohmann::json, std::string> parts[] = {
      {kPipeline, ""}, {mirrored, "resumed from .*step 16"}, {kPipeline, "resumed from .*step 32"}};
  int epochs = 0;
  for (const auto& [strategy, says] : parts) {
    JobRun part(job(strategy, "parts", ++epochs), Machine());
    ASSERT_EQ(part.Wait(), 0) << part.launcher().err();
    if (!says.empty()) {
      EXPECT_THAT(part.Log(0), ContainsRegex(says));
    }
  }
  const auto want = NewestSnapshot(folder_.File("whole")), got = NewestSnapshot(folder_.File("parts"));
  ASSERT_TRUE(want && got);
  EXPECT_EQ(got->step, want->step);
  EXPECT_THAT(got->parameters, ::testing::Pointwise(::testing::FloatNear(2e-3f), want->parameters));
}

TEST_F(GpuTrainingTest, ADryRunShowsThePipelinesDeviceMap) {
  nlohmann::json spec = OnTwo({});
  spec["strategy"] = {{"type", "Pipeline"}};
  JobRun::Options options = Machine();
  options.arguments = {"--dry-run", "-o", "json"};
  JobRun run(spec, options);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  const auto map = nlohmann::json::parse(run.launcher().out(), nullptr, false)["deviceMap"];
  ASSERT_EQ(map.size(), 2u) << run.launcher().out() << run.launcher().err();
  for (size_t stage = 0; stage < 2; ++stage) {
    EXPECT_EQ(map[stage]["ranks"], nlohmann::json({stage}));
    EXPECT_EQ(map[stage]["layers"], nlohmann::json({stage == 0 ? "dense" : "dense_1"}));
    EXPECT_GT(map[stage]["bytes"], 1000);
    EXPECT_GT(map[stage]["microBatchSeconds"], 0);
  }
}

// (On fewer digits: the stand-in for a GPU is slow.)
TEST_F(GpuTrainingTest, TheExampleOfAPipelineLearns) {
  std::string manifest = ReadText(LOCKSTEP_SOURCE_DIR "/manifests/examples/pipeline-gpu.yaml");
  const std::string data = "{format: Digits, validationSamples: 5000}";
  ASSERT_NE(manifest.find(data), std::string::npos);
  manifest.replace(manifest.find(data), data.size(),
                   "{format: Digits, samples: 5000, validationSamples: 500, testSamples: 1000}");
  LauncherProcess run(
      {.arguments = {"run", folder_.Write("job.yaml", manifest), "--run-dir", folder_.File("run")},
       .environment = Machine().environment});
  ASSERT_EQ(run.Wait(), 0) << run.err();
  EXPECT_GT(TestAccuracy(run.out()), 0.6) << run.out();
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
  const auto mirrored = [](const char* ops, const char* shard) {
    return nlohmann::json{{"type", "Mirrored"}, {"crossDeviceOps", ops}, {"shard", shard}};
  };
  const nlohmann::json ways[] = {mirrored("NCCL", "None"), mirrored("HierarchicalCopy", "None"),
                                 mirrored("NCCL", "Gradients"), mirrored("HierarchicalCopy", "Optimizer"),
                                 kPipeline};
  for (size_t way = 0; way < std::size(ways); ++way) {
    const auto job = [&](const std::string& checkpoints) {
      nlohmann::json spec =
          OnTwo({.samples = 4096, .epochs = 6, .checkpoints = folder_.File(checkpoints), .every = 10});
      spec["strategy"] = ways[way];
      return spec;
    };
    const std::string name = "whole-" + std::to_string(way),
                      disturbed_name = "disturbed-" + std::to_string(way);
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
    EXPECT_EQ(got->parameters, want->parameters) << ways[way];
    EXPECT_EQ(got->slots, want->slots) << ways[way];
  }
}

// Whatever the order in which gradients come to the server: on two GPUs what four processors come to.
TEST_F(GpuTrainingTest, WorkersAndTheEvaluatorOfParameterServersComputeOnGpus) {
  const Digits digits{.samples = 4096, .epochs = 3, .checkpoints = folder_.File("served"), .every = 0};
  nlohmann::json spec = Served(digits, true);
  spec["trainer"]["checkpoint"].erase("every");
  JobRun run(spec, Machine());
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_GT(TestAccuracy(run.Log(4)), 0.5) << run.Log(4);
  EXPECT_THAT(run.Log(0), HasSubstr("(GPU-00000000-"));
  EXPECT_THAT(run.Log(1), HasSubstr("(GPU-11111111-"));
  EXPECT_THAT(run.Log(4), HasSubstr("(GPU-22222222-"));
  const auto served = NewestSnapshot(digits.checkpoints);
  JobRun mirrored(DigitsSpec({.samples = 4096, .epochs = 3, .checkpoints = folder_.File("mirrored")}));
  ASSERT_EQ(mirrored.Wait(), 0) << mirrored.launcher().err();
  const auto want = NewestSnapshot(folder_.File("mirrored"));
  ASSERT_TRUE(served && want);
  EXPECT_EQ(served->step, want->step);
  EXPECT_THAT(served->parameters, ::testing::Pointwise(::testing::FloatNear(1e-4f), want->parameters));
}

TEST_F(GpuTrainingTest, AKilledWorkerOfParameterServersIsStartedAgainAloneOnItsGpu) {
  const Digits digits{.samples = 4096, .epochs = 12, .checkpoints = folder_.File("served"), .every = 16};
  JobRun run(Served(digits, false), Machine());
  ASSERT_TRUE(WaitUntil([&] {
    const auto status = run.Status();
    return run.launcher().HasEnded() ||
           (status.is_object() && status.contains("progress") && status["progress"].value("step", 0) >= 10);
  })) << run.launcher().err();
  const auto status = run.Status();
  ASSERT_TRUE(status.is_object()) << run.launcher().err();
  const pid_t victim = status["ranks"][1].value("pid", 0);
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("alone"));
  EXPECT_THAT(run.Log(1), HasSubstr("(GPU-11111111-"));
  const auto served = NewestSnapshot(digits.checkpoints);
  ASSERT_TRUE(served);
  EXPECT_EQ(served->step, 12 * 16);
}

// Whatever is killed when; the seed is fixed, the machine is not.
TEST_F(GpuTrainingTest, TwentyKillsLoseNothingAndDoNothingTwice) {
  constexpr int kSamples = 4096, kEpochs = 4;  // 64 steps
  const auto job = [&](const nlohmann::json& strategy, const std::string& checkpoints) {
    nlohmann::json spec = OnTwo(
        {.samples = kSamples, .epochs = kEpochs, .checkpoints = folder_.File(checkpoints), .every = 10});
    spec["strategy"] = strategy;
    return spec;
  };
  const std::vector<nlohmann::json> ways = {{{"crossDeviceOps", "NCCL"}},
                                            {{"crossDeviceOps", "HierarchicalCopy"}, {"shard", "Optimizer"}}};
  std::mt19937 random(1);
  for (size_t way = 0; way < ways.size(); ++way) {
    const std::string whole = "whole-" + std::to_string(way);
    JobRun undisturbed(job(ways[way], whole), Machine());
    ASSERT_EQ(undisturbed.Wait(), 0) << undisturbed.launcher().err();
    const auto want = NewestSnapshot(folder_.File(whole));
    ASSERT_TRUE(want);
    for (int disturbed = 0; disturbed < 5; ++disturbed) {
      const std::string name = "disturbed-" + std::to_string(way) + "-" + std::to_string(disturbed);
      JobRun::Options options = Machine();
      options.environment.emplace_back("TRAINING_LEDGER", folder_.File(name + "-ledger"));
      JobRun run(job(ways[way], name), options);
      for (int kill = 0, step = 0; kill < 2; ++kill) {
        step += std::uniform_int_distribution(0, 25)(random);
        const auto pids = run.Pids(kill);
        ASSERT_EQ(pids.size(), 2u) << run.launcher().err();
        ASSERT_TRUE(WaitUntil([&] {
          const auto status = run.Status();
          return step == 0 || (status.is_object() && status.contains("progress") &&
                               status["progress"].value("step", 0) >= step);
        })) << run.launcher().err();
        ::kill(pids[random() % 2], SIGKILL);
      }
      ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
      const auto got = NewestSnapshot(folder_.File(name));
      ASSERT_TRUE(got);
      EXPECT_EQ(got->step, want->step);
      EXPECT_EQ(got->parameters, want->parameters) << ways[way];
      EXPECT_EQ(got->slots, want->slots) << ways[way];
      const auto ledger = trainer::checkpoint::ReadLedger(folder_.File(name + "-ledger"));
      ASSERT_TRUE(ledger.ok()) << ledger.status().ToString();
      const auto summary = trainer::checkpoint::CommittedOnce(*ledger, kSamples, kEpochs);
      EXPECT_TRUE(summary.ok()) << summary.status().ToString();
    }
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
