#include "trainer/optimizer/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

// Keras 3.15.1's, as tests/unit/model/make_golden.py prints them, for 0 to 11 updates done before. (It
// computes in float32.)
struct Golden {
  std::string name;
  ScheduleOptions schedule;
  std::vector<double> rates;
};

class ScheduleTest : public testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(
    Keras, ScheduleTest,
    testing::Values(
        Golden{"Step",
               {.kind = ScheduleKind::kStep, .boundaries = {3, 7}, .learning_rates = {0.03, 0.004}},
               {0.1, 0.1, 0.1, 0.1, 0.03, 0.03, 0.03, 0.03, 0.004, 0.004, 0.004, 0.004}},
        Golden{"Exponential",
               {.kind = ScheduleKind::kExponential, .decay_steps = 4, .decay_rate = 0.5},
               {0.100000001, 0.084089644, 0.070710681, 0.059460353, 0.050000001, 0.042044822, 0.035355341,
                0.029730177, 0.025000000, 0.021022411, 0.017677670, 0.014865088}},
        Golden{"Staircase",
               {.kind = ScheduleKind::kExponential, .decay_steps = 4, .decay_rate = 0.5, .staircase = true},
               {0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025}},
        Golden{"Cosine",
               {.kind = ScheduleKind::kCosine, .decay_steps = 8, .final_learning_rate = 0.005},
               {0.100000001, 0.096384279, 0.086087577, 0.070677459, 0.052499998, 0.034322534, 0.018912429,
                0.008615718, 0.005, 0.005, 0.005, 0.005}},
        Golden{"CosineAfterWarmUp",
               {.kind = ScheduleKind::kCosine,
                .warm_up_steps = 4,
                .warm_up_from = 0.02,
                .decay_steps = 6,
                .final_learning_rate = 0.005},
               {0.02, 0.04, 0.06, 0.08, 0.1, 0.093636207, 0.076250002, 0.052499998, 0.028749997, 0.011363794,
                0.005, 0.005}}),
    [](const auto& info) { return info.param.name; });

TEST_P(ScheduleTest, IsThatOfKeras) {
  const Golden& golden = GetParam();
  CheckSchedule(golden.schedule);
  for (size_t done = 0; done < golden.rates.size(); ++done) {
    EXPECT_NEAR(LearningRateAt(golden.schedule, 0.1, static_cast<int64_t>(done) + 1), golden.rates[done],
                1e-7)
        << done;
  }
}

// Keras has a warm-up for the cosine alone; the others begin after theirs in the same way.
TEST_P(ScheduleTest, AWarmUpOnlyComesBefore) {
  ScheduleOptions later = GetParam().schedule;
  later.warm_up_steps += 5;
  later.warm_up_from = 0.01;
  EXPECT_DOUBLE_EQ(LearningRateAt(later, 0.1, 1), 0.01);
  for (int64_t step = 1; step < later.warm_up_steps; ++step) {
    EXPECT_NEAR(LearningRateAt(later, 0.1, step + 1) - LearningRateAt(later, 0.1, step),
                0.09 / static_cast<double>(later.warm_up_steps), 1e-12);
  }
  for (int64_t step = 1; step < 12; ++step) {
    EXPECT_EQ(LearningRateAt(later, 0.1, later.warm_up_steps + step),
              LearningRateAt(GetParam().schedule, 0.1, GetParam().schedule.warm_up_steps + step));
  }
}

TEST(CheckScheduleTest, RefusesWhatIsOutOfRangeByName) {
  const auto message = [](const ScheduleOptions& schedule) -> std::string {
    try {
      CheckSchedule(schedule);
    } catch (const BadModel& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({}), "accepted");
  EXPECT_THAT(message({.warm_up_steps = -1}), testing::HasSubstr("warmUpSteps"));
  EXPECT_THAT(message({.warm_up_from = -1}), testing::HasSubstr("warmUpFrom"));
  ScheduleOptions steps{.kind = ScheduleKind::kStep, .boundaries = {5, 5}, .learning_rates = {1, 1}};
  EXPECT_THAT(message(steps), testing::HasSubstr("boundaries"));
  steps.boundaries = {5, 6, 7};
  EXPECT_THAT(message(steps), testing::HasSubstr("learningRates"));
  EXPECT_THAT(message({.kind = ScheduleKind::kExponential}), testing::HasSubstr("decaySteps"));
  EXPECT_THAT(message({.kind = ScheduleKind::kExponential, .decay_steps = 1, .decay_rate = 0}),
              testing::HasSubstr("decayRate"));
  EXPECT_THAT(message({.kind = ScheduleKind::kCosine, .decay_steps = 1, .final_learning_rate = -1}),
              testing::HasSubstr("finalLearningRate"));
}

}  // namespace
}  // namespace lockstep::trainer
