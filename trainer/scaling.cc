#include "trainer/scaling.h"

#include <algorithm>

namespace lockstep::trainer {

void ScaleTo(int replicas, Config* config) {
  if (config->scaling != Scaling::kLinear || replicas == config->replicas) return;
  const int64_t whole = config->batch_size;
  const int64_t scaled = (whole * replicas + config->replicas / 2) / config->replicas;
  config->batch_size = std::max<int64_t>(1, scaled);
  const double part = static_cast<double>(config->batch_size) / static_cast<double>(whole);
  config->optimizer.learning_rate *= part;
  ScheduleOptions& schedule = config->optimizer.schedule;
  schedule.warm_up_from *= part;
  schedule.final_learning_rate *= part;
  for (double& rate : schedule.learning_rates) rate *= part;
}

}  // namespace lockstep::trainer
