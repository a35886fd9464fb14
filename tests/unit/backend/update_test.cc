#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/unit/backend/random_values.h"
#include "tests/unit/backend/test_backends.h"

// What a backend does to the flat buffers.
namespace lockstep::trainer {
namespace {

using UpdateTest = BackendTest<AnyCase>;
INSTANTIATE_TEST_SUITE_P(Backends, UpdateTest,
                         testing::Combine(testing::ValuesIn(TestBackends()), testing::Values(AnyCase())),
                         TestName<AnyCase>);

constexpr size_t kCount = 1003;

struct FlatBuffers {
  explicit FlatBuffers(Backend& backend)
      : w(backend, RandomValues(kCount, 1)),
        g(backend, RandomValues(kCount, 2)),
        slot0(backend, RandomValues(kCount, 3)),
        slot1(backend, RandomValues(kCount, 4, 0, 1)) {}
  UpdateBuffers View(const StepRates* rates = nullptr) const {
    return {
        .parameters = w.data(), .gradients = g.data(), .slots = {slot0.data(), slot1.data()}, .rates = rates};
  }
  std::vector<std::vector<float>> Fetch() const { return {w.Fetch(), slot0.Fetch(), slot1.Fetch()}; }

  OnBackend<float> w, g, slot0, slot1;
};

const AdamStep kAdam{.alpha = 0.01f,
                     .one_minus_beta1 = 0.1f,
                     .one_minus_beta2 = 0.001f,
                     .epsilon = 1e-7f,
                     .adjust = {.l2 = 0.3f}};
const SgdStep kSgd{.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true, .adjust = {.l2 = 0.3f}};

TEST_P(UpdateTest, AdamFollowsItsFormula) {
  for (const float l2 : {0.0f, 0.01f}) {
    const FlatBuffers buffers(backend());
    const auto w = buffers.w.Fetch(), g = buffers.g.Fetch(), m = buffers.slot0.Fetch(),
               v = buffers.slot1.Fetch();
    AdamStep step = kAdam;
    step.adjust.l2 = l2;
    backend().Adam(step, buffers.View(), 0, kCount);
    const auto w2 = buffers.w.Fetch(), m2 = buffers.slot0.Fetch(), v2 = buffers.slot1.Fetch();
    for (size_t i = 0; i < kCount; ++i) {
      const double gradient = g[i] + 2.0 * l2 * w[i];
      const double first = m[i] + (gradient - m[i]) * step.one_minus_beta1;
      const double second = v[i] + (gradient * gradient - v[i]) * step.one_minus_beta2;
      ASSERT_NEAR(m2[i], first, 1e-6);
      ASSERT_NEAR(v2[i], second, 1e-6);
      ASSERT_NEAR(w2[i], w[i] - step.alpha * first / (std::sqrt(second) + step.epsilon), 1e-5);
    }
  }
}

TEST_P(UpdateTest, SgdFollowsItsFormulas) {
  for (const float l2 : {0.0f, 0.1f}) {
    for (const bool nesterov : {false, true}) {
      for (const float momentum : {0.0f, 0.9f}) {
        const FlatBuffers buffers(backend());
        const auto w = buffers.w.Fetch(), g = buffers.g.Fetch(), velocity = buffers.slot0.Fetch();
        UpdateBuffers view = buffers.View();
        if (momentum == 0) view.slots[0] = nullptr;
        backend().Sgd(
            {.learning_rate = 0.1f, .momentum = momentum, .nesterov = nesterov, .adjust = {.l2 = l2}}, view,
            0, kCount);
        const auto w2 = buffers.w.Fetch(), velocity2 = buffers.slot0.Fetch();
        for (size_t i = 0; i < kCount; ++i) {
          const double move = 0.1 * (g[i] + 2.0 * l2 * w[i]);
          const double speed = momentum * velocity[i] - move;
          const double wanted = momentum == 0 ? w[i] - move
                                : nesterov    ? w[i] + momentum * speed - move
                                              : w[i] + speed;
          ASSERT_NEAR(w2[i], wanted, 1e-6);
          ASSERT_NEAR(velocity2[i], momentum != 0 ? speed : velocity[i], 1e-6);
        }
      }
    }
  }
}

TEST_P(UpdateTest, RangesLeaveTheRestAlone) {
  const FlatBuffers buffers(backend());
  const auto before = buffers.w.Fetch();
  backend().Adam(kAdam, buffers.View(), 5, 5);
  EXPECT_EQ(buffers.w.Fetch(), before);
  backend().Adam(kAdam, buffers.View(), 7, 614);
  const auto after = buffers.w.Fetch();
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(after[i] != before[i], i >= 7 && i < 614) << i;
}

// The buckets of a job are updated as they come, wherever they happen to be cut.
TEST_P(UpdateTest, CutsDoNotChangeBits) {
  const FlatBuffers adam_whole(backend()), adam_cut(backend()), sgd_whole(backend()), sgd_cut(backend());
  backend().Adam(kAdam, adam_whole.View(), 0, kCount);
  backend().Sgd(kSgd, sgd_whole.View(), 0, kCount);
  const int64_t count = kCount;
  for (int64_t begin = 0, width = 1; begin < count; width = width * 2 + 1) {
    const int64_t end = std::min(begin + width, count);
    backend().Adam(kAdam, adam_cut.View(), begin, end);
    backend().Sgd(kSgd, sgd_cut.View(), begin, end);
    begin = end;
  }
  EXPECT_EQ(adam_cut.Fetch(), adam_whole.Fetch());
  EXPECT_EQ(sgd_cut.Fetch(), sgd_whole.Fetch());
}

TEST_P(UpdateTest, TheRateMayLieInTheBackendsMemory) {
  const FlatBuffers adam(backend()), adam_there(backend()), sgd(backend()), sgd_there(backend());
  const OnBackend<StepRates> alpha(backend(), std::vector<StepRates>{{.rate = kAdam.alpha}});
  const OnBackend<StepRates> rate(backend(), std::vector<StepRates>{{.rate = kSgd.learning_rate}});
  AdamStep without_alpha = kAdam;
  SgdStep without_rate = kSgd;
  without_alpha.alpha = without_rate.learning_rate = NAN;
  backend().Adam(kAdam, adam.View(), 0, kCount);
  backend().Sgd(kSgd, sgd.View(), 0, kCount);
  backend().Adam(without_alpha, adam_there.View(alpha.data()), 0, kCount);
  backend().Sgd(without_rate, sgd_there.View(rate.data()), 0, kCount);
  EXPECT_EQ(adam_there.Fetch(), adam.Fetch());
  EXPECT_EQ(sgd_there.Fetch(), sgd.Fetch());
}

// Decay, the scale by the gradient's norm and the limit, in this order and each with L2.
TEST_P(UpdateTest, AdjustsTheGradientBeforeTheRule) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const OnBackend<double> squared_norm(backend(), std::vector<double>{6.25});
  for (const Adjustments& adjust :
       {Adjustments{.decays = true, .decay = 0.25f}, Adjustments{.l2 = 0.1f, .limit = 0.3f},
        Adjustments{.l2 = 0.1f, .norm_limit = 0.5f}, Adjustments{.norm_limit = 2.5f},
        Adjustments{.l2 = 0.1f, .norm_limit = 0.5f, .limit = 0.1f, .decays = true, .decay = 0.25f}}) {
    const double scale = adjust.norm_limit != 0 ? adjust.norm_limit / 2.5 : 1;
    const auto gradient = [&](float g, float w) {
      const double scaled = (g + 2.0 * adjust.l2 * w) * scale;
      return adjust.limit == kInfinity ? scaled : std::clamp<double>(scaled, -adjust.limit, adjust.limit);
    };
    const FlatBuffers sgd(backend()), momentum(backend()), adam(backend());
    const auto w = sgd.w.Fetch(), g = sgd.g.Fetch(), s0 = sgd.slot0.Fetch(), s1 = sgd.slot1.Fetch();
    for (const FlatBuffers* buffers : {&sgd, &momentum, &adam}) {
      UpdateBuffers view = buffers->View();
      view.squared_norm = squared_norm.data();
      SgdStep step{.learning_rate = 0.1f, .adjust = adjust};
      if (buffers == &momentum) step.momentum = 0.9f;
      AdamStep adam_step = kAdam;
      adam_step.adjust = adjust;
      // In pieces, of which none is aligned.
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 501}, {501, kCount}}) {
        buffers == &adam ? backend().Adam(adam_step, view, begin, end)
                         : backend().Sgd(step, view, begin, end);
      }
    }
    const auto by_sgd = sgd.w.Fetch(), by_momentum = momentum.w.Fetch(), by_adam = adam.w.Fetch();
    for (size_t i = 0; i < kCount; ++i) {
      const double kept = w[i] * (1.0 - (adjust.decays ? adjust.decay : 0)), adjusted = gradient(g[i], w[i]);
      ASSERT_NEAR(by_sgd[i], kept - 0.1 * adjusted, 1e-6);
      ASSERT_NEAR(by_momentum[i], kept + 0.9 * s0[i] - 0.1 * adjusted, 1e-6);
      const double m = s0[i] + (adjusted - s0[i]) * 0.1, v = s1[i] + (adjusted * adjusted - s1[i]) * 0.001;
      ASSERT_NEAR(by_adam[i], kept - 0.01 * m / (std::sqrt(v) + 1e-7), 1e-5);
    }
  }
}

TEST_P(UpdateTest, TheRateOfDecayMayLieInTheBackendsMemory) {
  const FlatBuffers there(backend()), here(backend());
  const OnBackend<StepRates> rates(backend(), std::vector<StepRates>{{.rate = 0.1f, .decay = 0.01f}});
  SgdStep step{.learning_rate = 0.1f, .adjust = {.decays = true, .decay = 0.01f}};
  backend().Sgd(step, here.View(), 0, kCount);
  step.learning_rate = step.adjust.decay = NAN;
  backend().Sgd(step, there.View(rates.data()), 0, kCount);
  EXPECT_EQ(there.Fetch(), here.Fetch());
}

TEST_P(UpdateTest, AveragesAndAccumulates) {
  const FlatBuffers buffers(backend());
  const auto w = buffers.w.Fetch(), average = buffers.slot0.Fetch(), sum = buffers.slot1.Fetch();
  const OnBackend<StepRates> rates(backend(), std::vector<StepRates>{{.keep = 0}});
  backend().MoveAverage(0.75f, nullptr, buffers.w.data(), buffers.slot0.data(), 3, 900);
  backend().MoveAverage(NAN, rates.data(), buffers.w.data(), buffers.slot0.data(), 950, kCount);
  backend().Accumulate(-0.5f, buffers.w.data(), buffers.slot1.data(), kCount - 1);
  const auto average2 = buffers.slot0.Fetch(), sum2 = buffers.slot1.Fetch();
  for (size_t i = 0; i < kCount; ++i) {
    const bool outside = i < 3 || (i >= 900 && i < 950);
    const double wanted = outside ? average[i] : i >= 950 ? w[i] : 0.75 * average[i] + 0.25 * w[i];
    ASSERT_NEAR(average2[i], wanted, outside || i >= 950 ? 0 : 1e-7) << i;
    ASSERT_NEAR(sum2[i], i + 1 < kCount ? sum[i] - 0.5 * w[i] : sum[i], 1e-7) << i;
  }
}

class DeviceUpdateTest : public UpdateTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceUpdateTest);
INSTANTIATE_TEST_SUITE_P(Devices, DeviceUpdateTest,
                         testing::Combine(testing::ValuesIn(TestDevices()), testing::Values(AnyCase())),
                         TestName<AnyCase>);

// More copies than one launch takes, at places of every kind.
TEST_P(DeviceUpdateTest, WritesRoundedCopies) {
  constexpr uint16_t kUntouched = 0x1234;
  std::vector<RoundedCopy> copies;
  std::vector<OnBackend<BFloat16>> memory;
  for (int64_t begin = 0, width = 1; begin + width <= static_cast<int64_t>(kCount); begin += width + 1) {
    width = width % 41 + 3;
    if (begin + width > static_cast<int64_t>(kCount)) break;
    memory.emplace_back(backend(), std::vector<BFloat16>(static_cast<size_t>(width), BFloat16{kUntouched}));
    copies.push_back({begin, begin + width, memory.back().data()});
  }
  ASSERT_GT(copies.size(), 40u);
  const int64_t first = 10, last = kCount - 10;
  for (const bool momentum : {false, true}) {
    const FlatBuffers buffers(backend());
    UpdateBuffers view = buffers.View();
    view.rounded = copies;
    if (momentum) {
      backend().Sgd(kSgd, view, first, last);
    } else {
      backend().Adam(kAdam, view, first, last);
    }
    const auto w = buffers.w.Fetch();
    for (size_t i = 0; i < copies.size(); ++i) {
      const auto rounded = memory[i].Fetch();
      for (int64_t at = copies[i].begin; at < copies[i].end; ++at) {
        const bool inside = at >= first && at < last;
        const uint16_t wanted = inside ? ToBFloat16(w[static_cast<size_t>(at)]).bits : kUntouched;
        ASSERT_EQ(rounded[static_cast<size_t>(at - copies[i].begin)].bits, wanted) << at;
      }
    }
  }
}

TEST_P(UpdateTest, SumOfSquaresIsInDouble) {
  for (const size_t count : {1, 31, 100003, 3000000}) {
    const auto values = RandomValues(count, 4);
    const OnBackend<float> there(backend(), values);
    double wanted = 0;
    for (const float value : values) wanted += static_cast<double>(value) * value;
    const double sum = backend().SumOfSquares(there.data(), static_cast<int64_t>(count));
    EXPECT_NEAR(sum, wanted, 1e-9 * wanted);
    EXPECT_EQ(backend().SumOfSquares(there.data(), static_cast<int64_t>(count)), sum);
  }
  const OnBackend<float> some(backend(), std::vector<float>{3});
  EXPECT_EQ(backend().SumOfSquares(some.data(), 0), 0);
}

TEST_P(UpdateTest, ZeroIsZero) {
  const OnBackend<float> values(backend(), RandomValues(1001, 1));
  backend().Zero(values.data(), 1000 * sizeof(float));
  const auto after = values.Fetch();
  EXPECT_TRUE(std::all_of(after.begin(), after.end() - 1, [](float value) { return value == 0; }));
  EXPECT_NE(after.back(), 0);
}

}  // namespace
}  // namespace lockstep::trainer
