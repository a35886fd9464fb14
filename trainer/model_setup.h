#pragma once

#include "trainer/backend/backend.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"

// What every process makes of the configuration before it trains.
namespace lockstep::trainer {

// As asked for where there are instructions for it; elsewhere Unsupported, or Float32 with soft placement, of
// which who `reports` tells.
Precision ChoosePrecision(const Config& config, const Backend& backend, bool reports);

// Of the whole model.
struct ModelVariables {
  std::vector<NamedShape> variables;
  std::vector<NamedShape> state;
};
checkpoint::Signature MakeSignature(const Config& config, Precision precision, const ModelVariables& model,
                                    const Optimizer& optimizer, int64_t training_samples);

// Of a whole training.
int64_t TotalSteps(const Config& config, int64_t training_samples);

// A schedule that is to end with the training gets to know when that is.
OptimizerOptions OptimizerFor(const Config& config, int64_t training_samples);

}  // namespace lockstep::trainer
