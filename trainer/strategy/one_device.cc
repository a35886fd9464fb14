#include "trainer/strategy/one_device.h"

namespace lockstep::trainer::strategy {

StepResult OneDevice::Step(const Batch& batch) {
  const double penalty = Penalty();
  const auto update = [&](int64_t begin, int64_t end) {
    Update(static_cast<size_t>(begin), static_cast<size_t>(end));
    model_->ParametersChanged(begin, end);
  };
  const LossResult result = model_->TrainStep(batch.inputs, batch.labels, batch.local_samples,
                                              1.0f / static_cast<float>(batch.global_samples), update);
  return Finished(ReportOf(result, batch), batch, penalty);
}

}  // namespace lockstep::trainer::strategy
