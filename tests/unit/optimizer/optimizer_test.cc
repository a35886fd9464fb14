#include "trainer/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

struct State {
  explicit State(size_t count)
      : parameters(RandomValues(count, 1)), slots{std::vector<float>(count), std::vector<float>(count)} {}
  UpdateBuffers Buffers(const std::vector<float>& gradients) {
    return {parameters.data(), gradients.data(), {slots[0].data(), slots[1].data()}};
  }
  bool operator==(const State&) const = default;

  std::vector<float> parameters;
  std::vector<float> slots[2];
};

std::vector<OptimizerOptions> AllKinds() {
  return {{.kind = OptimizerKind::kSgd, .learning_rate = 0.1},
          {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9},
          {.kind = OptimizerKind::kSgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true},
          {.kind = OptimizerKind::kAdam, .learning_rate = 0.001}};
}

class OptimizerTest : public testing::TestWithParam<int> {
 protected:
  OptimizerOptions options() const { return AllKinds()[static_cast<size_t>(GetParam())]; }
  std::unique_ptr<Backend> backend_ = MakeBackend({.threads = 1});
};

std::string KindName(const testing::TestParamInfo<int>& info) {
  const char* names[] = {"Sgd", "Momentum", "Nesterov", "Adam"};
  return names[info.param];
}
INSTANTIATE_TEST_SUITE_P(Kinds, OptimizerTest, testing::Range(0, 4), KindName);

// Written out from keras/src/optimizers/{sgd,adam}.py, in double.
class Reference {
 public:
  Reference(const OptimizerOptions& options, const std::vector<float>& parameters)
      : options_(options), w(parameters.begin(), parameters.end()), first(w.size()), second(w.size()) {}

  void Update(int64_t t, const std::vector<float>& gradients, double l2) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = gradients[i] + 2 * l2 * w[i];
      if (options_.kind == OptimizerKind::kAdam) {
        first[i] = options_.beta1 * first[i] + (1 - options_.beta1) * g;
        second[i] = options_.beta2 * second[i] + (1 - options_.beta2) * g * g;
        const double rate = options_.learning_rate * std::sqrt(1 - std::pow(options_.beta2, t)) /
                            (1 - std::pow(options_.beta1, t));
        w[i] -= rate * first[i] / (std::sqrt(second[i]) + options_.epsilon);
      } else if (options_.momentum == 0) {
        w[i] -= options_.learning_rate * g;
      } else {
        first[i] = options_.momentum * first[i] - options_.learning_rate * g;
        w[i] += options_.nesterov ? options_.momentum * first[i] - options_.learning_rate * g : first[i];
      }
    }
  }

 private:
  OptimizerOptions options_;

 public:
  std::vector<double> w, first, second;
};

TEST_P(OptimizerTest, FollowsKerasOverManySteps) {
  for (const double l2 : {0.0, 0.01}) {
    const size_t count = 50;
    const auto optimizer = MakeOptimizer(options(), *backend_);
    State state(count);
    Reference reference(options(), state.parameters);
    const std::vector<UpdateRange> ranges = {
        {.begin = 0, .end = static_cast<int64_t>(count), .l2 = static_cast<float>(l2)}};
    for (int64_t t = 1; t <= 20; ++t) {
      const auto gradients = RandomValues(count, static_cast<uint32_t>(100 + t));
      optimizer->Update(t, state.Buffers(gradients), 0, static_cast<int64_t>(count), ranges);
      reference.Update(t, gradients, l2);
      for (size_t i = 0; i < count; ++i)
        ASSERT_NEAR(state.parameters[i], reference.w[i], 2e-5) << "step " << t;
    }
  }
}

TEST_P(OptimizerTest, ShardsGiveTheBitsOfTheWhole) {
  const int64_t count = 1000;
  const std::vector<UpdateRange> ranges = {{100, 333, 0.1f}, {500, 501, 0.2f}};
  const auto optimizer = MakeOptimizer(options(), *backend_);
  for (const auto& cuts :
       {std::vector<int64_t>{0, 250, 500, 750, 1000}, {0, 1, 17, 160, 333, 334, 999, 1000}}) {
    State whole(count), sharded(count);
    for (int64_t t = 1; t <= 3; ++t) {
      const auto gradients = RandomValues(count, static_cast<uint32_t>(t));
      optimizer->Update(t, whole.Buffers(gradients), 0, count, ranges);
      for (size_t i = cuts.size() - 1; i-- > 0;) {
        optimizer->Update(t, sharded.Buffers(gradients), cuts[i], cuts[i + 1], ranges);
      }
    }
    EXPECT_EQ(sharded, whole);
  }
}

TEST_P(OptimizerTest, TouchesNothingOutsideItsRange) {
  const auto optimizer = MakeOptimizer(options(), *backend_);
  State state(100);
  const State before = state;
  optimizer->Update(1, state.Buffers(std::vector<float>(100, 1.0f)), 40, 60, {});
  for (size_t i = 0; i < 100; ++i) {
    if (i >= 40 && i < 60) {
      EXPECT_NE(state.parameters[i], before.parameters[i]);
    } else {
      ASSERT_EQ(state.parameters[i], before.parameters[i]);
      ASSERT_EQ(state.slots[0][i], 0.0f);
    }
  }
}

TEST_P(OptimizerTest, PenalisesOnlyItsRanges) {
  const auto optimizer = MakeOptimizer(options(), *backend_);
  State plain(64), penalised(64);
  const std::vector<float> gradients(64, 0.25f);
  optimizer->Update(1, plain.Buffers(gradients), 0, 64, {});
  optimizer->Update(1, penalised.Buffers(gradients), 0, 64, std::vector<UpdateRange>{{10, 20, 50.0f}});
  for (size_t i = 0; i < 64; ++i) {
    const bool same = plain.parameters[i] == penalised.parameters[i];
    // (Adam's first step depends on the gradient's sign alone, and that a strong penalty turns where w < 0.)
    const bool penalised_here = i >= 10 && i < 20;
    if (!penalised_here || options().kind == OptimizerKind::kSgd) {
      EXPECT_EQ(same, !penalised_here) << i;
    }
  }
}

TEST_P(OptimizerTest, ZerosStayZeros) {
  const auto optimizer = MakeOptimizer(options(), *backend_);
  State state(32);
  state.parameters.assign(32, 0.0f);
  const std::vector<float> zeros(32);
  for (int64_t t = 1; t <= 3; ++t) optimizer->Update(t, state.Buffers(zeros), 0, 32, {});
  EXPECT_EQ(state.parameters, zeros);  // so padding stays padding
}

TEST(MakeOptimizerTest, NamesItsSlots) {
  const auto backend = MakeBackend({.threads = 1});
  const std::vector<std::vector<std::string>> wanted = {{}, {"momentum"}, {"momentum"}, {"m", "v"}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    OptimizerOptions options = AllKinds()[i];
    const auto plain = MakeOptimizer(options, *backend);
    EXPECT_EQ(plain->slot_names(), wanted[i]);
    EXPECT_EQ(plain->average_slot(), -1);
    options.average_momentum = 0.99;
    const auto averaging = MakeOptimizer(options, *backend);
    EXPECT_EQ(averaging->slots(), plain->slots() + 1);
    EXPECT_EQ(averaging->slot_names().back(), "average");
    EXPECT_EQ(averaging->average_slot(), plain->slots());
  }
}

TEST(MakeOptimizerTest, RefusesOptionsOutOfRangeByName) {
  const auto backend = MakeBackend({.threads = 1});
  const auto message = [&](const OptimizerOptions& options) -> std::string {
    try {
      MakeOptimizer(options, *backend);
    } catch (const BadModel& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.learning_rate = -1}), testing::HasSubstr("learningRate"));
  EXPECT_THAT(message({.learning_rate = NAN}), testing::HasSubstr("learningRate"));
  EXPECT_THAT(message({.momentum = 1.5}), testing::HasSubstr("momentum"));
  EXPECT_THAT(message({.kind = OptimizerKind::kAdam, .beta1 = 1}), testing::HasSubstr("beta1"));
  EXPECT_THAT(message({.kind = OptimizerKind::kAdam, .beta2 = -0.1}), testing::HasSubstr("beta2"));
  EXPECT_THAT(message({.kind = OptimizerKind::kAdam, .epsilon = 0}), testing::HasSubstr("epsilon"));
  EXPECT_THAT(message({.weight_decay = -0.1}), testing::HasSubstr("weightDecay"));
  EXPECT_THAT(message({.clip_value = INFINITY}), testing::HasSubstr("clipValue"));
  EXPECT_THAT(message({.global_clip_norm = -1}), testing::HasSubstr("globalClipNorm"));
  EXPECT_THAT(message({.clip_value = 1, .global_clip_norm = 1}), testing::HasSubstr("globalClipNorm"));
  EXPECT_THAT(message({.average_momentum = 1}), testing::HasSubstr("averageMomentum"));
  EXPECT_THAT(message({.schedule = {.kind = ScheduleKind::kCosine}}), testing::HasSubstr("decaySteps"));
}

}  // namespace
}  // namespace lockstep::trainer
