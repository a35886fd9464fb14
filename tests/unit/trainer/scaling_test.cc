#include "trainer/scaling.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::trainer {
namespace {

Config Scaled(Scaling scaling, int64_t batch, int replicas, int of) {
  Config config;
  config.scaling = scaling;
  config.batch_size = batch;
  config.optimizer.learning_rate = 0.5;
  config.replicas = of;
  ScaleTo(replicas, &config);
  return config;
}

TEST(ScalingTest, LinearKeepsTheSamplesOfAProcess) {
  EXPECT_EQ(Scaled(Scaling::kLinear, 256, 3, 4).batch_size, 192);
  EXPECT_DOUBLE_EQ(Scaled(Scaling::kLinear, 256, 3, 4).optimizer.learning_rate, 0.375);
  EXPECT_EQ(Scaled(Scaling::kLinear, 256, 4, 4).batch_size, 256);
  EXPECT_DOUBLE_EQ(Scaled(Scaling::kLinear, 256, 4, 4).optimizer.learning_rate, 0.5);
}

TEST(ScalingTest, TheLearningRateFollowsTheBatchAsItIsRounded) {
  EXPECT_EQ(Scaled(Scaling::kLinear, 100, 2, 3).batch_size, 67);
  EXPECT_DOUBLE_EQ(Scaled(Scaling::kLinear, 100, 2, 3).optimizer.learning_rate, 0.335);
  EXPECT_EQ(Scaled(Scaling::kLinear, 1, 1, 8).batch_size, 1);
  EXPECT_DOUBLE_EQ(Scaled(Scaling::kLinear, 1, 1, 8).optimizer.learning_rate, 0.5);
}

TEST(ScalingTest, EveryRateOfAScheduleIsScaled) {
  Config config;
  config.scaling = Scaling::kLinear;
  config.replicas = 2;
  config.batch_size = 64;
  config.optimizer.schedule = {
      .warm_up_from = 0.1, .learning_rates = {0.2, 0.4}, .final_learning_rate = 0.01};
  ScaleTo(1, &config);
  const ScheduleOptions& schedule = config.optimizer.schedule;
  EXPECT_DOUBLE_EQ(schedule.warm_up_from, 0.05);
  EXPECT_EQ(schedule.learning_rates, (std::vector<double>{0.1, 0.2}));
  EXPECT_DOUBLE_EQ(schedule.final_learning_rate, 0.005);
}

TEST(ScalingTest, KeepGlobalBatchKeepsBoth) {
  EXPECT_EQ(Scaled(Scaling::kKeepGlobalBatch, 256, 1, 4).batch_size, 256);
  EXPECT_DOUBLE_EQ(Scaled(Scaling::kKeepGlobalBatch, 256, 1, 4).optimizer.learning_rate, 0.5);
}

}  // namespace
}  // namespace lockstep::trainer
