#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/strategy/device_job.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/backend/device_backend.h"
#include "trainer/error.h"

// Ranks on GPUs that divide the optimizer's state, and the gradients too: threads of the test.
namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ExpectARestoredStateGoesOn;
using ::lockstep::testing::ExpectLossesNear;
using ::lockstep::testing::ExpectSameOnAllRanks;
using ::lockstep::testing::ExpectTheAverageIsReadWhereAsked;
using ::lockstep::testing::GpuJob;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Outcome;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Train;
using ::lockstep::testing::WhyNotSoMany;
using ::lockstep::testing::WithMomentumAndPenalty;
using ::lockstep::testing::WithTheWholeRecipe;
using ::lockstep::testing::WithUnevenShares;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Relative, of losses. (A GPU multiplies batches of different sizes in different ways.)
#ifdef LOCKSTEP_TEST_ON_GPU
constexpr double kNear = 1e-4;
#else
constexpr double kNear = 1e-5;
#endif

// Layers enough for a rank's gradients to come to less than the whole.
Job Deep(Job job) {
  job.widths = {20, 128, 128, 128, 128, 128, 128, 10};
  job.optimizer.learning_rate = 0.002;
  job.global_batch = 24;
  return job;
}

struct Case {
  std::string name;
  Job job;
  int gpus;  // that the ranks of a machine are on, in turn
};

std::vector<Case> Cases() {
  const Kind multi = Kind::kMultiWorkerMirrored;
  const CrossDeviceOps tree = CrossDeviceOps::kHierarchicalCopy, one = CrossDeviceOps::kReductionToOneDevice;
  return {
      {"OptimizerHierarchicalCopy3", {.local_size = 3, .ops = tree, .shard = Shard::kOptimizer}, 3},
      {"OptimizerNccl2", {.local_size = 2, .ops = CrossDeviceOps::kNccl, .shard = Shard::kOptimizer}, 2},
      {"OptimizerFourOnOneGpu", {.local_size = 4, .shard = Shard::kOptimizer}, 1},
      {"GradientsReductionToOneDevice3", Deep({.local_size = 3, .ops = one, .shard = Shard::kGradients}), 3},
      {"GradientsHierarchicalCopy2", Deep({.local_size = 2, .ops = tree, .shard = Shard::kGradients}), 2},
      {"GradientsNccl4", Deep({.local_size = 4, .ops = CrossDeviceOps::kNccl, .shard = Shard::kGradients}),
       4},
      {"GradientsTwoMachinesOfTwo",
       Deep({.machines = 2, .local_size = 2, .kind = multi, .shard = Shard::kGradients}), 4}};
}

class DeviceShardTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNotSoMany(GetParam().gpus); !why.empty()) GTEST_SKIP() << why;
  }
  static Job Divided() { return GpuJob(GetParam().job, GetParam().gpus); }
  static Job OneGpu() {
    Job job{.kind = Kind::kOneDevice};
    job.widths = GetParam().job.widths;
    job.global_batch = GetParam().job.global_batch;
    job.optimizer = GetParam().job.optimizer;
    return GpuJob(job, 1);
  }
};

TEST_P(DeviceShardTest, GivesTheLossesOfOneDevice) {
  const Outcome outcome = Train(Divided(), 100);
  ExpectSameOnAllRanks(outcome);
  const Outcome reference = Train(OneGpu(), 100);
  ASSERT_THAT(reference.thrown, Each(IsEmpty()));
  ExpectLossesNear(outcome, reference, kNear);
  EXPECT_LT(reference.losses[0].back(), reference.losses[0].front() / 4) << "the job is to learn something";
}

TEST_P(DeviceShardTest, UnevenSharesAndIdleRanksChangeNothing) {
  const Outcome outcome = Train(WithUnevenShares(Divided()), 40);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(OneGpu(), 40), kNear);
}

TEST_P(DeviceShardTest, MomentumPenaltyAndTheWholeRecipeAreTheSameToo) {
  constexpr int64_t kSteps = 12;
  Outcome reference;
  for (const auto& recipe : {WithMomentumAndPenalty, WithTheWholeRecipe}) {
    const Outcome outcome = Train(recipe(Divided()), kSteps);
    ExpectSameOnAllRanks(outcome);
    reference = Train(recipe(OneGpu()), kSteps);
    ExpectLossesNear(outcome, reference, kNear);
  }
  Job unclipped = WithTheWholeRecipe(OneGpu());
  unclipped.optimizer.global_clip_norm = 0;
  EXPECT_NE(Train(unclipped, kSteps).losses, reference.losses) << "the norm is to have been clipped";
}

TEST_P(DeviceShardTest, TheAverageIsReadWhereAsked) { ExpectTheAverageIsReadWhereAsked(Divided()); }

TEST_P(DeviceShardTest, ARestoredStateGoesOnBitForBit) {
  EXPECT_EQ(ExpectARestoredStateGoesOn(WithTheWholeRecipe(Divided())), 1) << "the others have it from rank 0";
}

// Over peer access sums are added in the order of ranks, divided or not.
TEST_P(DeviceShardTest, GivesTheBitsOfTheWhole) {
  Job undivided = Divided();
  undivided.shard = Shard::kNone;
  const Outcome divided = Train(Divided(), 20), whole = Train(undivided, 20);
  ExpectLossesNear(divided, whole, kNear);
  if (undivided.machines > 1 || undivided.ops == CrossDeviceOps::kNccl) return;
  EXPECT_EQ(divided.losses, whole.losses);
  EXPECT_EQ(divided.parameters, whole.parameters);
  EXPECT_EQ(divided.slots[0], whole.slots[0]);
}

TEST_P(DeviceShardTest, RecordedStepsGiveTheSameBits) {
  Job ordinary = Divided();
  ordinary.record_steps = false;
  const Outcome recorded = Train(Divided(), 20), plain = Train(ordinary, 20);
  ExpectSameOnAllRanks(recorded);
  EXPECT_EQ(recorded.losses, plain.losses);
  EXPECT_EQ(recorded.parameters, plain.parameters);
  EXPECT_EQ(recorded.slots[0], plain.slots[0]);
}

TEST_P(DeviceShardTest, StepsInFlightAndCheckpointsBetweenThemGiveTheSameBits) {
  const Job job = Divided();
  const Outcome one_by_one = Train(job, 12);
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    std::vector<double> losses;
    for (int64_t step = 0; step < 12; step += 3) {
      for (int64_t i = 0; i < 3; ++i) rank.strategy().StartStep(rank.Load(step + i));
      for (int64_t i = 0; i < 3; ++i) losses.push_back(rank.strategy().FinishStep().loss);
      WholeState state;
      state.slots.resize(static_cast<size_t>(rank.optimizer().slots()));
      rank.strategy().Export(rank.model(), rank.strategy().ShareOut(rank.model(), 4),
                             r == 0 ? &state : nullptr);
    }
    EXPECT_EQ(losses, one_by_one.losses[0]) << r;
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

TEST_P(DeviceShardTest, BatchStatisticsAndPiecesAreThoseOfOneDevice) {
  Job job = Divided(), reference = OneGpu();
  for (Job* each : {&job, &reference}) each->pieces = 2;
  ExpectLossesNear(Train(job, 20), Train(reference, 20), kNear);
  if (job.machines > 1) return;
  for (Job* each : {&job, &reference}) {
    each->pieces = 1;  // whose samples are others with each number of ranks
    each->normalised = true;
    each->widths = Job().widths;  // in a deep one rounding grows from layer to layer
    each->optimizer = Job().optimizer;
    each->global_batch = Job().global_batch;
  }
  const Outcome outcome = Train(WithUnevenShares(job), 20);
  ExpectSameOnAllRanks(outcome);
  ExpectLossesNear(outcome, Train(reference, 20), 1e-4);
}

TEST_P(DeviceShardTest, ARankThatFailsEndsTheOthersSoon) {
  const Job job = Divided();
  if (job.machines > 1) GTEST_SKIP() << "the other machine's launcher tells";
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = Train(job, 100, [&](JobRank& rank, const StepResult&) {
    if (rank.rank() == 1 && rank.strategy().step() == 5) throw BadData("a torn page");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "well before the deadline";
  for (size_t r = 0; r < outcome.thrown.size(); ++r) {
    EXPECT_THAT(outcome.thrown[r], r == 1 ? HasSubstr("torn page") : HasSubstr(": rank ")) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceShardTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Device memory that the ranks have in use after two steps, the model's own included.
std::vector<int64_t> UsedBytes(const Job& job) {
  std::vector<int64_t> bytes(static_cast<size_t>(job.size()));
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    for (int64_t step = 0; step < 2; ++step) rank.Step(step);
    bytes[static_cast<size_t>(r)] = rank.device()->memory_use().used;
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  return bytes;
}

TEST(DeviceShardMemoryTest, ARankHoldsItsShareOfTheOptimizersStateAndOfTheGradients) {
  if (const std::string why = WhyNotSoMany(4); !why.empty()) GTEST_SKIP() << why;
  Job job = GpuJob(Deep({.local_size = 4}), 4);
  // One layer of 20 inputs, five of 128 and one of 10 outputs.
  const double parameters = 4.0 * (20 * 128 + 5 * 128 * 128 + 128 * 10 + 6 * 128 + 10);
  const std::vector<int64_t> whole = UsedBytes(job);
  job.shard = Shard::kOptimizer;
  const std::vector<int64_t> optimizer = UsedBytes(job);
  job.shard = Shard::kGradients;
  const std::vector<int64_t> gradients = UsedBytes(job);
  const double two_buckets = 2 * 4.0 * 128 * 128 / parameters;
  for (size_t r = 0; r < whole.size(); ++r) {
    // Of Adam's two slots a quarter.
    EXPECT_NEAR(static_cast<double>(whole[r] - optimizer[r]) / parameters, 2 * 0.75, 0.02) << r;
    // Of the gradients' sums a quarter, and the gradients of two of the five large layers with what is small.
    EXPECT_NEAR(static_cast<double>(optimizer[r] - gradients[r]) / parameters, 0.75 - two_buckets, 0.04) << r;
  }
}

}  // namespace
}  // namespace lockstep::trainer::strategy
