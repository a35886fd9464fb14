#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

void Require(bool condition, const std::string& option, double value, const std::string& right) {
  if (condition) return;
  throw BadModel("optimizer: " + option + " is " + std::to_string(value) + "; it must be " + right);
}

// Calls `update(begin, end, l2)` for the pieces of [begin, end) with one and the same penalty.
template <typename Update>
void ForEachPiece(int64_t begin, int64_t end, std::span<const L2Range> ranges, Update&& update) {
  for (const L2Range& range : ranges) {
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(end, range.end);
    if (from >= to) continue;
    if (begin < from) update(begin, from, 0.0f);
    update(from, to, range.l2);
    begin = to;
  }
  if (begin < end) update(begin, end, 0.0f);
}

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, Backend& backend) : options_(options), backend_(backend) {}

  int slots() const override { return options_.momentum != 0 ? 1 : 0; }
  double learning_rate() const override { return options_.learning_rate; }
  void set_learning_rate(double learning_rate) override { options_.learning_rate = learning_rate; }

  float Rate(int64_t) const override { return static_cast<float>(options_.learning_rate); }

  void Update(int64_t step_number, const UpdateBuffers& buffers, int64_t begin, int64_t end,
              std::span<const L2Range> l2_ranges) override {
    SgdStep step{.learning_rate = Rate(step_number),
                 .momentum = static_cast<float>(options_.momentum),
                 .nesterov = options_.nesterov};
    ForEachPiece(begin, end, l2_ranges, [&](int64_t from, int64_t to, float l2) {
      step.l2 = l2;
      backend_.Sgd(step, buffers, from, to);
    });
  }

 private:
  OptimizerOptions options_;
  Backend& backend_;
};

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, Backend& backend) : options_(options), backend_(backend) {}

  int slots() const override { return 2; }
  double learning_rate() const override { return options_.learning_rate; }
  void set_learning_rate(double learning_rate) override { options_.learning_rate = learning_rate; }

  float Rate(int64_t step) const override {
    const double t = static_cast<double>(step);
    return static_cast<float>(options_.learning_rate * std::sqrt(1 - std::pow(options_.beta2, t)) /
                              (1 - std::pow(options_.beta1, t)));
  }

  void Update(int64_t step_number, const UpdateBuffers& buffers, int64_t begin, int64_t end,
              std::span<const L2Range> l2_ranges) override {
    AdamStep step{.alpha = Rate(step_number),
                  .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                  .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                  .epsilon = static_cast<float>(options_.epsilon)};
    ForEachPiece(begin, end, l2_ranges, [&](int64_t from, int64_t to, float l2) {
      step.l2 = l2;
      backend_.Adam(step, buffers, from, to);
    });
  }

 private:
  OptimizerOptions options_;
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, Backend& backend) {
  Require(options.learning_rate >= 0 && std::isfinite(options.learning_rate), "learningRate",
          options.learning_rate, "a number of at least 0");
  if (options.kind == OptimizerKind::kSgd) {
    Require(options.momentum >= 0 && options.momentum <= 1, "momentum", options.momentum, "in [0, 1]");
    return std::make_unique<Sgd>(options, backend);
  }
  Require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "in [0, 1)");
  Require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "in [0, 1)");
  Require(options.epsilon > 0 && std::isfinite(options.epsilon), "epsilon", options.epsilon,
          "greater than 0");
  return std::make_unique<Adam>(options, backend);
}

}  // namespace lockstep::trainer
