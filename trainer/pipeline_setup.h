#pragma once

#include <chrono>

#include "common/contract/store.h"
#include "trainer/config.h"
#include "trainer/model/model.h"
#include "trainer/strategy/pipeline_plan.h"

namespace lockstep::trainer {

struct PipelineRequest {
  const ModelConfig& model;
  const ModelOptions& options;      // of the whole
  strategy::PipelineOptions asked;  // no stages: cut as its map says
  int slots = 0;                    // of the optimizer
  int rank = 0;
  int ranks = 1;
  int64_t batch_size = 0;            // global
  contract::Store* store = nullptr;  // null when there is one rank
  std::chrono::milliseconds timeout{};
};

struct PipelineSetup {
  strategy::PipelineOptions pipeline;  // the same on every rank
  ModelOptions options;                // of this rank's stage
};

// Which layers this rank has. Where the stages are not given, rank 0 cuts them, tells the others, and logs
// what came of it. Throws Unsupported when the ranks do not make whole pipelines, BadModel when a stage has
// nothing to train, RendezvousFailed.
PipelineSetup SetUpPipeline(const PipelineRequest& request, Backend& backend);

struct PipelineStage {
  LayerRange layers;
  double seconds = 0;  // forward and backward of a micro-batch; 0: not measured
  int64_t bytes = 0;   // of variables, gradients, the optimizer's state and activations
};

// The stages, as given or cut as the map asks for: kBalanced times each layer on a micro-batch; kSequential
// takes as few stages as their memory allows, of those that divide the ranks. Throws as SetUpPipeline.
std::vector<PipelineStage> MapStages(const PipelineRequest& request, Backend& backend);

// What each layer costs a micro-batch of `samples`; its time is measured here, if it is asked for.
std::vector<strategy::LayerCost> MeasureLayers(const ModelConfig& model, const ModelOptions& options,
                                               int64_t samples, int slots, Backend& backend,
                                               bool timed = true);

}  // namespace lockstep::trainer
