#pragma once

#include "trainer/model/model.h"

namespace lockstep::trainer::strategy {

// A part of a rank's share of a batch, which goes through a pipeline at once.
struct MicroBatch {
  ModelBatch batch;   // inputs only of a model that reads them
  int64_t begin = 0;  // in the share
};

// Part `index` of `count`, of about as many samples each; `share` as the model takes it (ForModel).
MicroBatch MicroBatchOf(const Model& model, const ModelBatch& share, int index, int count);

// How many parts there are of a share of `samples`: `asked`, or as many as samples.
int CountMicroBatches(int64_t samples, int asked);

}  // namespace lockstep::trainer::strategy
