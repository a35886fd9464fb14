#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::trainer {

enum class ScheduleKind { kConstant, kStep, kExponential, kCosine };

// How the learning rate changes from step to step. First a linear warm-up from warm_up_from to the learning
// rate; the other steps below are counted from its end.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warm_up_steps = 0;
  double warm_up_from = 0;
  // kStep: past boundaries[i] the learning rate is learning_rates[i]. Ascending; equally many.
  std::vector<int64_t> boundaries;
  std::vector<double> learning_rates;
  int64_t decay_steps = 0;         // kExponential, kCosine
  double decay_rate = 0.96;        // kExponential: the factor after each decay_steps
  bool staircase = false;          // kExponential: in whole factors only
  double final_learning_rate = 0;  // kCosine: after decay_steps
};

// Throws BadModel for options out of range, naming the field.
void CheckSchedule(const ScheduleOptions& schedule);

// The learning rate of update `step`, counted from 1, of which nothing else decides. Keras'
// PiecewiseConstantDecay, ExponentialDecay and CosineDecay
// (keras/src/optimizers/schedules/learning_rate_schedule.py), whose step is the number of updates done
// before; CosineDecay's warm-up for all of them.
double LearningRateAt(const ScheduleOptions& schedule, double learning_rate, int64_t step);

}  // namespace lockstep::trainer
