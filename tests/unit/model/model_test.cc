#include "trainer/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/model/model_fixture.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

class ModelTest : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    const auto backend = MakeBackend({.threads = 1});
    if (GetParam() == Precision::kBFloat16 && !backend->Supports(Op::kDense, DataType::kBFloat16).supported) {
      GTEST_SKIP() << backend->Supports(Op::kDense, DataType::kBFloat16).reason;
    }
  }
  Trained Make(int64_t features, const std::vector<int64_t>& units, int64_t batch, double l2 = 0) const {
    return {Perceptron(units, l2), {.sample = {features}, .max_local_batch = batch, .precision = GetParam()}};
  }
};

std::string PrecisionName(const testing::TestParamInfo<Precision>& info) {
  return info.param == Precision::kBFloat16 ? "BFloat16" : "Float32";
}
INSTANTIATE_TEST_SUITE_P(Precisions, ModelTest, testing::Values(Precision::kFloat32, Precision::kBFloat16),
                         PrecisionName);

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

TEST_P(ModelTest, LaysOutTheLastLayerFirst) {
  const Trained trained = Make(7, {5, 3}, 4);
  const ParameterLayout& layout = trained.model.layout();
  std::vector<std::string> names;
  int64_t end = 0;
  for (const Variable& variable : layout.variables) {
    names.push_back(variable.name);
    EXPECT_EQ(variable.offset % kVariablePadding, 0);
    EXPECT_GE(variable.offset, end);
    EXPECT_GE(variable.size, variable.shape.num_elements());
    end = variable.offset + variable.size;
  }
  EXPECT_THAT(names, testing::ElementsAre("dense_1/kernel", "dense_1/bias", "dense/kernel", "dense/bias"));
  EXPECT_EQ(layout.variables[2].shape, (Shape{7, 5}));
  EXPECT_GE(layout.total, end);
  EXPECT_EQ(trained.model.canonical_size(), 7 * 5 + 5 + 5 * 3 + 3);
  EXPECT_EQ(trained.model.training_flops(), 4 * 7 * 5 + 6 * 5 * 3);
}

TEST_P(ModelTest, GradientsBecomeReadyFromTheFrontOn) {
  Trained trained = Make(7, {5, 6, 3}, 8);
  const Batch batch(8, 7, 3, 1);
  trained.Step(batch);
  const auto wanted = Copy(trained.gradients());
  std::fill(trained.gradients().begin(), trained.gradients().end(), NAN);
  int64_t at = 0;
  int calls = 0;
  trained.Step(batch, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, at);
    for (const Variable& variable : trained.model.layout().variables) {
      if (variable.offset < begin || variable.offset >= end) continue;
      for (int64_t i = variable.offset; i < variable.offset + variable.size; ++i) {
        EXPECT_EQ(trained.gradients()[static_cast<size_t>(i)], wanted[static_cast<size_t>(i)]);
      }
    }
    at = end;
    ++calls;
  });
  EXPECT_EQ(at, trained.model.layout().total);
  EXPECT_EQ(calls, 3);
}

// Updating each layer as its gradients come is the same as updating all in the end.
TEST_P(ModelTest, ParametersMayBeUpdatedWhileTheStepGoesOn) {
  Trained late = Make(20, {16, 16, 4}, 8), early = Make(20, {16, 16, 4}, 8);
  const auto optimizer = MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.01}, *late.backend);
  for (int64_t step = 1; step <= 5; ++step) {
    const Batch batch(8, 20, 4, static_cast<uint32_t>(step));
    late.Step(batch);
    late.Update(*optimizer, step);
    early.Step(batch, [&](int64_t begin, int64_t end) {
      optimizer->Update(step,
                        {early.flat[0].as<float>(),
                         early.flat[1].as<float>(),
                         {early.flat[2].as<float>(), early.flat[3].as<float>()}},
                        begin, end, {});
      early.model.ParametersChanged(begin, end);
    });
  }
  EXPECT_EQ(Copy(early.parameters()), Copy(late.parameters()));
}

TEST_P(ModelTest, SameInputsGiveTheSameBits) {
  Trained one = Make(50, {33, 10}, 16), other = Make(50, {33, 10}, 16);
  const auto optimizer = MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.01}, *one.backend);
  for (int64_t step = 1; step <= 20; ++step) {
    const Batch batch(16, 50, 10, static_cast<uint32_t>(step));
    EXPECT_EQ(one.Step(batch).loss_sum, other.Step(batch).loss_sum);
    one.Update(*optimizer, step);
    other.Update(*optimizer, step);
  }
  EXPECT_EQ(Copy(one.parameters()), Copy(other.parameters()));
}

// What two ranks compute of one batch adds up to what one rank computes, and a rank may have no sample at
// all.
TEST_P(ModelTest, PartsOfABatchAddUp) {
  Trained trained = Make(30, {24, 10}, 32);
  const Batch batch(32, 30, 10, 3);
  const LossResult whole = trained.Step(batch);
  const auto wanted = Copy(trained.gradients());
  std::vector<double> sum(wanted.size());
  double loss = 0;
  int64_t correct = 0, first = 0;
  for (const int64_t part : {20, 0, 7, 5}) {
    const LossResult result =
        trained.model.TrainStep({.inputs = part == 0 ? nullptr : batch.InputsFor(trained.model, first),
                                 .labels = part == 0 ? nullptr : batch.LabelsFor(trained.model, first),
                                 .n = part,
                                 .scale = 1.0f / 32},
                                {});
    loss += result.loss_sum;
    correct += result.correct;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += trained.gradients()[i];
    first += part;
  }
  EXPECT_NEAR(loss, whole.loss_sum, 1e-5);
  EXPECT_EQ(correct, whole.correct);
  const double tolerance = GetParam() == Precision::kBFloat16 ? 1e-5 : 1e-7;
  for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], wanted[i], tolerance);
}

TEST_P(ModelTest, SmallerBatchEqualsAModelMadeForIt) {
  Trained large = Make(30, {24, 10}, 32), small = Make(30, {24, 10}, 5);
  const Batch batch(5, 30, 10, 3);
  large.Step(Batch(32, 30, 10, 1));
  EXPECT_EQ(large.Step(batch).loss_sum, small.Step(batch).loss_sum);
  EXPECT_EQ(Copy(large.gradients()), Copy(small.gradients()));
}

TEST_P(ModelTest, NoSamplesGiveZeroGradients) {
  Trained trained = Make(7, {5, 3}, 4);
  trained.Step(Batch(4, 7, 3, 1));
  int64_t at = 0;
  const LossResult result = trained.model.TrainStep({.scale = 0.25f}, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin, at);
    at = end;
  });
  EXPECT_EQ(at, trained.model.layout().total);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.correct, 0);
  EXPECT_THAT(trained.gradients(), testing::Each(0.0f));
  EXPECT_EQ(trained.model.Evaluate(nullptr, nullptr, 0).loss_sum, 0);
}

TEST_P(ModelTest, EvaluatesAsItTrains) {
  Trained trained = Make(12, {9, 4}, 16);
  const Batch batch(16, 12, 4, 5);
  const LossResult step = trained.Step(batch);
  std::fill(trained.gradients().begin(), trained.gradients().end(), 3.0f);
  const LossResult evaluated =
      trained.model.Evaluate(batch.InputsFor(trained.model), batch.LabelsFor(trained.model), batch.n);
  EXPECT_EQ(evaluated.loss_sum, step.loss_sum);
  EXPECT_EQ(evaluated.correct, step.correct);
  EXPECT_THAT(trained.gradients(), testing::Each(3.0f));
}

TEST_P(ModelTest, ExportAndImportAreExact) {
  Trained trained = Make(13, {11, 3}, 4);
  const auto flat = Copy(trained.parameters());
  const auto canonical = trained.Canonical(trained.parameters());
  std::fill(trained.parameters().begin(), trained.parameters().end(), 0.0f);
  trained.model.ImportCanonical(canonical, trained.parameters().data());
  EXPECT_EQ(Copy(trained.parameters()), flat);
}

// Canonical order is that of the layers, kernel before bias, whatever the flat order.
TEST_P(ModelTest, CanonicalOrderIsThatOfTheLayers) {
  Trained trained = Make(2, {3, 2}, 4);
  std::vector<float> canonical(static_cast<size_t>(trained.model.canonical_size()));
  for (size_t i = 0; i < canonical.size(); ++i) canonical[i] = static_cast<float>(i + 1);
  trained.model.ImportCanonical(canonical, trained.parameters().data());
  trained.model.ParametersChanged(0, trained.model.layout().total);
  // x = (1, 0): hidden = kernel row 0 (1 2 3) + bias (7 8 9) = (8 10 12), all active;
  // kernel_1 = (10 11; 12 13; 14 15), bias_1 = (16 17).
  Batch batch(1, 2, 2, 1);
  batch.inputs = {1, 0};
  batch.narrow_inputs = {ToBFloat16(1), ToBFloat16(0)};
  trained.model.Evaluate(batch.InputsFor(trained.model), batch.LabelsFor(trained.model), 1);
  EXPECT_FLOAT_EQ(trained.model.last_outputs()[0], 8 * 10 + 10 * 12 + 12 * 14 + 16);
  EXPECT_FLOAT_EQ(trained.model.last_outputs()[1], 8 * 11 + 10 * 13 + 12 * 15 + 17);
}

TEST_P(ModelTest, InitializesByTheSeedAlone) {
  Trained one = Make(13, {11, 3}, 4), other = Make(13, {11, 3}, 32);
  EXPECT_EQ(Copy(one.parameters()), Copy(other.parameters()));
  other.model.Initialize(8);
  EXPECT_NE(Copy(one.parameters()), Copy(other.parameters()));
  const auto& layout = one.model.layout();
  for (const Variable& variable : layout.variables) {
    const auto values =
        one.parameters().subspan(static_cast<size_t>(variable.offset), static_cast<size_t>(variable.size));
    EXPECT_EQ(std::all_of(values.begin(), values.end(), [](float value) { return value == 0; }),
              variable.name.ends_with("bias"))
        << variable.name;
  }
}

TEST_P(ModelTest, PenaltyIsKerasL2) {
  Trained trained = Make(4, {3, 2}, 4, 0.5);
  double squares = 0;
  for (const float value : trained.parameters())
    squares += static_cast<double>(value) * value;  // biases are zero
  EXPECT_NEAR(trained.model.L2Penalty(), 0.5 * squares, 1e-6);
  EXPECT_EQ(Make(4, {3, 2}, 4).model.L2Penalty(), 0);
  EXPECT_EQ(trained.model.layout().update_ranges().size(), 2u);
}

// Points in rings: not separable by a line, so the hidden layers must learn.
TEST_P(ModelTest, LearnsToTellRingsApart) {
  Trained trained = Make(2, {32, 32, 3}, 64);
  const auto optimizer =
      MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.01}, *trained.backend);
  const auto rings = [](uint32_t seed) {
    Batch batch(64, 2, 3, seed);
    for (size_t r = 0; r < 64; ++r) {
      const float length = std::hypot(batch.inputs[2 * r], batch.inputs[2 * r + 1]);
      batch.labels[r] = length < 0.45f ? 0 : length < 0.8f ? 1 : 2;
    }
    return batch;
  };
  for (int64_t step = 1; step <= 600; ++step) {
    trained.Step(rings(static_cast<uint32_t>(step)));
    trained.Update(*optimizer, step);
  }
  int64_t correct = 0;
  for (uint32_t seed = 10000; seed < 10010; ++seed) {
    const Batch batch = rings(seed);
    correct += trained.model.Evaluate(batch.InputsFor(trained.model), batch.LabelsFor(trained.model), batch.n)
                   .correct;
  }
  EXPECT_GE(correct, 608);  // 95 % of 640
}

TEST_P(ModelTest, LabelOutOfRangeIsBadData) {
  Trained trained = Make(7, {5, 3}, 4);
  Batch batch(4, 7, 3, 1);
  batch.labels[2] = 3;
  EXPECT_THROW(trained.Step(batch), BadData);
}

TEST(ModelConfigTest, RefusesWhatCannotBe) {
  const auto backend = MakeBackend({.threads = 1});
  const auto message = [&](const ModelConfig& config, const ModelOptions& options) -> std::string {
    try {
      Model model(config, options, *backend);
    } catch (const BadModel& error) {
      return error.what();
    }
    return "accepted";
  };
  const ModelOptions right{.sample = {4}, .max_local_batch = 2};
  EXPECT_THAT(message({}, right), testing::HasSubstr("layers"));
  EXPECT_THAT(message(Perceptron({3, 0}), right),
              testing::AllOf(testing::HasSubstr("dense_1"), testing::HasSubstr("units")));
  EXPECT_THAT(message(Perceptron({3}, -1), right), testing::HasSubstr("l2"));
  EXPECT_THAT(message(Perceptron({3}), {.sample = {0}, .max_local_batch = 2}), testing::HasSubstr("samples"));
  EXPECT_THAT(message(Perceptron({3}), right), testing::StrEq("accepted"));
}

// Two places by turns, each zeroed before the step comes to it; and a step without samples.
TEST(ModelGradientsTest, MayLieInSeveralPlaces) {
  const ModelConfig config = Perceptron({40, 30, 20, 3});
  const ModelOptions options{.sample = {4}, .max_local_batch = 5};
  Trained whole(config, options);
  const auto backend = MakeBackend({.threads = 1});
  Model model(config, options, *backend);
  const std::vector<int64_t> ends = model.layer_ends();
  ASSERT_EQ(ends.size(), 4);
  EXPECT_EQ(ends.back(), model.layout().total);

  const auto total = static_cast<size_t>(model.layout().total);
  const Buffer parameters = ZeroedHostBuffer(total * sizeof(float));
  const Buffer memory = ZeroedHostBuffer(2 * total * sizeof(float));
  std::vector<GradientRange> ranges;
  for (size_t i = 0; i < ends.size(); ++i) {
    ranges.push_back({i == 0 ? 0 : ends[i - 1], ends[i], memory.as<float>() + (i % 2) * total});
  }
  model.Bind(parameters.span<float>(), ranges);
  model.Initialize(7);
  for (const int64_t n : {5, 0}) {
    Batch batch(5, 4, 3, 1);
    batch.n = n;
    const ModelBatch given{
        .inputs = batch.inputs.data(), .labels = batch.labels.data(), .n = n, .scale = 1.0f / 5};
    whole.model.TrainStep(given, {});
    std::vector<float> got(total, -1);
    size_t next = 0;
    const auto zero = [&](size_t i) {
      if (i < ranges.size()) std::fill_n(ranges[i].data, ranges[i].end - ranges[i].begin, 0.0f);
    };
    zero(0);
    model.TrainStep(given, [&](int64_t, int64_t end) {
      if (next == ranges.size() || end != ranges[next].end) return;
      const GradientRange& range = ranges[next++];
      std::copy_n(range.data, range.end - range.begin, got.begin() + range.begin);
      zero(next);
    });
    EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.gradients().begin())) << n;
  }

  const std::vector<GradientRange> through_a_layer{{0, 8, memory.as<float>()},
                                                   {8, model.layout().total, memory.as<float>()}};
  EXPECT_THROW(model.Bind(parameters.span<float>(), through_a_layer), BadModel);
  Model in_pieces(config, {.sample = {4}, .max_local_batch = 5, .pieces = 2}, *backend);
  EXPECT_TRUE(in_pieces.adds_up_pieces());
  EXPECT_THROW(in_pieces.Bind(parameters.span<float>(), ranges), BadModel);
}

TEST(ModelConfigTest, RefusesTooSmallBuffersAndTooLargeBatches) {
  const auto backend = MakeBackend({.threads = 1});
  Model model(Perceptron({3}), {.sample = {4}, .max_local_batch = 2}, *backend);
  std::vector<float> small(3), large(static_cast<size_t>(model.layout().total));
  EXPECT_THROW(model.Bind(small, large), BadModel);
  model.Bind(large, large);
  const Batch batch(3, 4, 3, 1);
  EXPECT_THROW(model.Evaluate(batch.inputs.data(), batch.labels.data(), 3), BadModel);
}

}  // namespace
}  // namespace lockstep::trainer
