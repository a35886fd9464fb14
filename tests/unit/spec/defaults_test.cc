#include <gtest/gtest.h>

#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using testing::JobOf;
using testing::WithSpec;
using testing::WithTrainer;

TrainingJob WithOptimizer(const std::string& optimizer) {
  return JobOf(WithSpec("  trainer:\n    optimizer: " + optimizer +
                        "\n    model: {layers: [{type: Dense, units: 10}]}\n"));
}

TEST(DefaultsTest, StrategyFollowsTheReplicas) {
  EXPECT_EQ(JobOf(WithTrainer("")).strategy.type, StrategyType::kMirrored);
  EXPECT_EQ(JobOf(WithTrainer("  replicas: 2")).strategy.type, StrategyType::kMultiWorkerMirrored);
  EXPECT_EQ(JobOf(WithTrainer("  replicas: 2\n  strategy: {type: ~}")).strategy.type,
            StrategyType::kMultiWorkerMirrored);
  EXPECT_EQ(JobOf(WithTrainer("  strategy: {type: MultiWorkerMirrored}")).strategy.type,
            StrategyType::kMultiWorkerMirrored);
  EXPECT_EQ(JobOf(WithTrainer("  strategy: {type: OneDevice}")).strategy.type, StrategyType::kOneDevice);
}

TEST(DefaultsTest, OptimizersAreKeras) {
  const Optimizer adam = WithOptimizer("{type: Adam}").trainer->optimizer;
  EXPECT_EQ(adam.learning_rate, 0.001);
  EXPECT_EQ(adam.beta1, 0.9);
  EXPECT_EQ(adam.beta2, 0.999);
  EXPECT_EQ(adam.epsilon, 1e-7);
  const Optimizer sgd = WithOptimizer("{type: SGD}").trainer->optimizer;
  EXPECT_EQ(sgd.learning_rate, 0.01);
  EXPECT_EQ(sgd.momentum, 0);
  EXPECT_EQ(WithOptimizer("{type: Adam, learningRate: 0.01}").trainer->optimizer.learning_rate, 0.01);
}

TEST(DefaultsTest, DigitsAreFiftyThousandAndTenThousand) {
  const Data data = JobOf(WithTrainer("")).trainer->data;
  EXPECT_EQ(data.format, DataFormat::kDigits);
  EXPECT_EQ(data.samples, 50'000);
  EXPECT_EQ(data.test_samples, 10'000);
  EXPECT_EQ(data.validation_samples, 0);
}

TEST(DefaultsTest, LayersAreNamedAsKerasDoes) {
  const TrainingJob job =
      JobOf(WithSpec("  trainer: {model: {layers: [{type: Dense, units: 1}, {type: BatchNormalization}, "
                     "{type: Dense, units: 1}, "
                     "{type: Dense, name: dense_2, units: 1}, {type: Conv2D, filters: 1, kernelSize: [1]}, "
                     "{type: MaxPool2D}, {type: "
                     "Dense, units: 10}]}}\n"));
  std::vector<std::string> names;
  for (const Layer& layer : job.trainer->model.layers) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"dense", "batch_normalization", "dense_1", "dense_2", "conv2d",
                                             "max_pool2d", "dense_3"}));
}

TEST(DefaultsTest, WhatPlacementDecidesStaysEmpty) {
  const Role role = JobOf(WithTrainer("")).roles.at(0);
  EXPECT_EQ(role.name, "worker");
  EXPECT_EQ(role.replicas, 1);
  EXPECT_FALSE(role.processes_per_replica.has_value());
  EXPECT_FALSE(role.devices.visibility.has_value());
  EXPECT_TRUE(role.devices.visible.empty());
}

TEST(DefaultsTest, TheOnlyRolesProgramIsTheJobs) {
  const TrainingJob job = JobOf(WithSpec("  roles: [{name: worker, program: {command: [a]}}]\n"));
  ASSERT_TRUE(job.program.has_value());
  EXPECT_FALSE(job.roles[0].program.has_value());
}

}  // namespace
}  // namespace lockstep::spec
