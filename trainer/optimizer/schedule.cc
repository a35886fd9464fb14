#include "trainer/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

void Require(bool condition, const std::string& field, const std::string& right) {
  if (!condition) throw BadModel("optimizer.schedule." + field + " must be " + right);
}

bool IsRate(double value) { return value >= 0 && std::isfinite(value); }

}  // namespace

void CheckSchedule(const ScheduleOptions& schedule) {
  Require(schedule.warm_up_steps >= 0, "warmUpSteps", "at least 0");
  Require(IsRate(schedule.warm_up_from), "warmUpFrom", "a number of at least 0");
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return;
    case ScheduleKind::kStep:
      Require(!schedule.boundaries.empty() &&
                  std::is_sorted(schedule.boundaries.begin(), schedule.boundaries.end(), std::less_equal<>()),
              "boundaries", "steps, each after the one before");
      Require(schedule.learning_rates.size() == schedule.boundaries.size() &&
                  std::all_of(schedule.learning_rates.begin(), schedule.learning_rates.end(), IsRate),
              "learningRates", "a number of at least 0 for each of the boundaries");
      return;
    case ScheduleKind::kExponential:
      Require(schedule.decay_rate > 0 && std::isfinite(schedule.decay_rate), "decayRate", "greater than 0");
      Require(schedule.decay_steps > 0, "decaySteps", "at least 1");
      return;
    case ScheduleKind::kCosine:
      Require(IsRate(schedule.final_learning_rate), "finalLearningRate", "a number of at least 0");
      Require(schedule.decay_steps > 0, "decaySteps", "at least 1");
      return;
  }
}

double LearningRateAt(const ScheduleOptions& schedule, double learning_rate, int64_t step) {
  int64_t done = step - 1;
  if (done < schedule.warm_up_steps) {
    const double part = static_cast<double>(done) / static_cast<double>(schedule.warm_up_steps);
    return schedule.warm_up_from + (learning_rate - schedule.warm_up_from) * part;
  }
  done -= schedule.warm_up_steps;
  const double part =
      static_cast<double>(done) / static_cast<double>(std::max<int64_t>(schedule.decay_steps, 1));
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return learning_rate;
    case ScheduleKind::kStep: {
      const auto passed = std::lower_bound(schedule.boundaries.begin(), schedule.boundaries.end(), done) -
                          schedule.boundaries.begin();
      return passed == 0 ? learning_rate : schedule.learning_rates[static_cast<size_t>(passed - 1)];
    }
    case ScheduleKind::kExponential:
      return learning_rate * std::pow(schedule.decay_rate, schedule.staircase ? std::floor(part) : part);
    case ScheduleKind::kCosine: {
      const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * std::min(part, 1.0)));
      return schedule.final_learning_rate + (learning_rate - schedule.final_learning_rate) * cosine;
    }
  }
  return learning_rate;
}

}  // namespace lockstep::trainer
