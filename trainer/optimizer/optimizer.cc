#include "trainer/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

void Require(bool condition, const std::string& option, double value, const std::string& right) {
  if (condition) return;
  throw BadModel("optimizer: " + option + " is " + std::to_string(value) + "; it must be " + right);
}

// Calls `visit(from, to, range)` for the pieces of [begin, end) that are in one range for which `matters`
// holds, and with an empty range for what is between them.
template <typename Matters, typename Visit>
void ForEachPiece(int64_t begin, int64_t end, std::span<const UpdateRange> ranges, Matters&& matters,
                  Visit&& visit) {
  for (const UpdateRange& range : ranges) {
    const int64_t from = std::max(begin, range.begin);
    const int64_t to = std::min(end, range.end);
    if (from >= to || !matters(range)) continue;
    if (begin < from) visit(begin, from, UpdateRange{});
    visit(from, to, range);
    begin = to;
  }
  if (begin < end) visit(begin, end, UpdateRange{});
}

// What both rules share.
class Rule : public Optimizer {
 public:
  Rule(const OptimizerOptions& options, Backend& backend, std::vector<std::string> slot_names)
      : options_(options), backend_(backend), slot_names_(std::move(slot_names)) {
    if (options.average_momentum == 0) return;
    average_slot_ = static_cast<int>(slot_names_.size());
    slot_names_.push_back("average");
  }

  const std::vector<std::string>& slot_names() const override { return slot_names_; }
  int average_slot() const override { return average_slot_; }
  bool clips_by_norm() const override { return options_.global_clip_norm != 0; }

  double learning_rate(int64_t step) const override {
    return LearningRateAt(options_.schedule, options_.learning_rate, step);
  }
  StepRates Rates(int64_t step) const override {
    const double rate = learning_rate(step);
    return {.rate = static_cast<float>(rate * Correction(step)),
            .decay = static_cast<float>(rate * options_.weight_decay),
            .keep = step == 1 ? 0 : static_cast<float>(options_.average_momentum)};
  }

  void Update(int64_t step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
              std::span<const UpdateRange> ranges) override {
    if (clips_by_norm() && buffers.squared_norm == nullptr) {
      throw Unsupported(
          "optimizer: globalClipNorm needs the norm of the whole gradient, which this strategy does not sum "
          "up");
    }
    const StepRates rates = Rates(step);
    ForEachPiece(
        begin, end, ranges, [&](const UpdateRange& range) { return Penalises(range) || Decays(range); },
        [&](int64_t from, int64_t to, const UpdateRange& range) {
          Adjustments adjust{.l2 = Penalises(range) ? range.l2 : 0,
                             .norm_limit = static_cast<float>(options_.global_clip_norm),
                             .decays = Decays(range),
                             .decay = rates.decay};
          if (options_.clip_value != 0) adjust.limit = static_cast<float>(options_.clip_value);
          Apply(rates, adjust, buffers, from, to);
        });
    if (average_slot_ < 0) return;
    backend_.MoveAverage(rates.keep, buffers.rates, buffers.parameters, buffers.slots[average_slot_], begin,
                         end);
  }

  void AddPenalties(const float* parameters, float* gradients, int64_t begin, int64_t end,
                    std::span<const UpdateRange> ranges) override {
    ForEachPiece(
        begin, end, ranges, [](const UpdateRange& range) { return range.l2 != 0; },
        [&](int64_t from, int64_t to, const UpdateRange& range) {
          if (range.l2 != 0)
            backend_.Accumulate(2 * range.l2, parameters + from, gradients + from, to - from);
        });
  }

  double SquaredNorm(const float* parameters, float* gradients, int64_t begin, int64_t end,
                     std::span<const UpdateRange> ranges) override {
    AddPenalties(parameters, gradients, begin, end, ranges);
    return backend_.SumOfSquares(gradients + begin, end - begin);
  }

 protected:
  // What the rule multiplies the learning rate by.
  virtual double Correction(int64_t /*step*/) const { return 1; }
  virtual void Apply(const StepRates& rates, const Adjustments& adjust, const UpdateBuffers& buffers,
                     int64_t begin, int64_t end) = 0;

  const OptimizerOptions options_;
  Backend& backend_;

 private:
  bool Penalises(const UpdateRange& range) const { return range.l2 != 0 && !clips_by_norm(); }
  bool Decays(const UpdateRange& range) const { return range.decays && options_.weight_decay != 0; }

  std::vector<std::string> slot_names_;
  int average_slot_ = -1;
};

std::vector<std::string> SgdSlots(const OptimizerOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum"};
}

class Sgd final : public Rule {
 public:
  Sgd(const OptimizerOptions& options, Backend& backend) : Rule(options, backend, SgdSlots(options)) {}

 private:
  void Apply(const StepRates& rates, const Adjustments& adjust, const UpdateBuffers& buffers, int64_t begin,
             int64_t end) override {
    backend_.Sgd({.learning_rate = rates.rate,
                  .momentum = static_cast<float>(options_.momentum),
                  .nesterov = options_.nesterov,
                  .adjust = adjust},
                 buffers, begin, end);
  }
};

class Adam final : public Rule {
 public:
  Adam(const OptimizerOptions& options, Backend& backend) : Rule(options, backend, {"m", "v"}) {}

 private:
  double Correction(int64_t step) const override {
    const double t = static_cast<double>(step);
    return std::sqrt(1 - std::pow(options_.beta2, t)) / (1 - std::pow(options_.beta1, t));
  }
  void Apply(const StepRates& rates, const Adjustments& adjust, const UpdateBuffers& buffers, int64_t begin,
             int64_t end) override {
    backend_.Adam({.alpha = rates.rate,
                   .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                   .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                   .epsilon = static_cast<float>(options_.epsilon),
                   .adjust = adjust},
                  buffers, begin, end);
  }
};

bool IsAmount(double value) { return value >= 0 && std::isfinite(value); }

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, Backend& backend) {
  const std::string amount = "a number of at least 0";
  Require(IsAmount(options.learning_rate), "learningRate", options.learning_rate, amount);
  Require(IsAmount(options.weight_decay), "weightDecay", options.weight_decay, amount);
  Require(IsAmount(options.clip_value), "clipValue", options.clip_value, amount);
  Require(IsAmount(options.global_clip_norm), "globalClipNorm", options.global_clip_norm, amount);
  Require(options.clip_value == 0 || options.global_clip_norm == 0, "clipValue", options.clip_value,
          "0 where globalClipNorm is given");
  Require(options.average_momentum >= 0 && options.average_momentum < 1, "averageMomentum",
          options.average_momentum, "in [0, 1)");
  CheckSchedule(options.schedule);
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
