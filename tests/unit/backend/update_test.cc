#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  UpdateBuffers View(const float* rate = nullptr) const {
    return {
        .parameters = w.data(), .gradients = g.data(), .slots = {slot0.data(), slot1.data()}, .rate = rate};
  }
  std::vector<std::vector<float>> Fetch() const { return {w.Fetch(), slot0.Fetch(), slot1.Fetch()}; }

  OnBackend<float> w, g, slot0, slot1;
};

const AdamStep kAdam{
    .alpha = 0.01f, .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.001f, .epsilon = 1e-7f, .l2 = 0.3f};
const SgdStep kSgd{.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true, .l2 = 0.3f};

TEST_P(UpdateTest, AdamFollowsItsFormula) {
  for (const float l2 : {0.0f, 0.01f}) {
    const FlatBuffers buffers(backend());
    const auto w = buffers.w.Fetch(), g = buffers.g.Fetch(), m = buffers.slot0.Fetch(),
               v = buffers.slot1.Fetch();
    AdamStep step = kAdam;
    step.l2 = l2;
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
        backend().Sgd({.learning_rate = 0.1f, .momentum = momentum, .nesterov = nesterov, .l2 = l2}, view, 0,
                      kCount);
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
  const OnBackend<float> alpha(backend(), std::vector<float>{kAdam.alpha});
  const OnBackend<float> rate(backend(), std::vector<float>{kSgd.learning_rate});
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
