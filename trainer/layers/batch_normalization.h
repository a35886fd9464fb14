#pragma once

#include <memory>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/layers/plain_layer.h"

namespace lockstep::trainer {

// See BatchNormalizationKernel; over all axes but the last. With synchronised the statistics of a step are
// those of the replicas' batches together, so that they are one device's, and the moving ones are the same on
// all. Without, each replica normalises by its own samples, and what counts is the mean of their moving
// statistics (Layer::state_differs).
class BatchNormalization final : public PlainLayer {
 public:
  BatchNormalization(const LayerConfig& config, const LayerContext& context, Backend& backend);

  bool sums_over_replicas() const override { return synchronised_; }
  bool state_differs() const override { return !synchronised_; }
  std::vector<StateSpec> state() const override;
  void ExportState(int index, float* to) const override;
  void ImportState(int index, const float* from) override;

  size_t saved_bytes() const override { return kernel_->saved_bytes(); }
  void Bind(const std::vector<BoundVariable>& variables) override;
  void Forward(const Pass& pass, const LayerMemory& memory) override;
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) override;
  bool keeps_gradient() const override { return true; }

 private:
  BatchNormalizationKernel::SumOverReplicas SumOf(const Pass& pass) const;

  int64_t channels_;
  bool scale_;
  bool center_;
  bool synchronised_;
  std::unique_ptr<BatchNormalizationKernel> kernel_;
};

// Of BatchNormalization and LayerNormalization.
LayerFacts NormalizationFacts(const LayerConfig& config, const Shape& input);

}  // namespace lockstep::trainer
