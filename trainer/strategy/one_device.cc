#include "trainer/strategy/one_device.h"

namespace lockstep::trainer::strategy {

StepResult OneDevice::Step(const Batch& batch) {
  const auto update = [&](int64_t begin, int64_t end) {
    const trace::Scope scope(options_.trace, trace::Track::kCompute, "update");
    Update(static_cast<size_t>(begin), static_cast<size_t>(end));
    model_->ParametersChanged(begin, end);
  };
  const bool clips = optimizer_->clips_by_norm();
  const LossResult result = model_->TrainStep(ModelBatchOf(batch), clips ? Model::GradientsReady() : update);
  if (clips) {
    squared_norm_ = SquaredNorm(0, total());
    update(0, model_->layout().total);
  }
  return Finished(ReportOf(result, batch));
}

}  // namespace lockstep::trainer::strategy
