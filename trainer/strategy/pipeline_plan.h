#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/model.h"

// Who does what in a pipeline, and when: pure functions, the same on every rank.
namespace lockstep::trainer::strategy {

// In which order a stage works off its micro-batches. kGPipe: all forward passes, then all backward passes
// (Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019).
// kOneForwardOneBackward: a backward pass as soon as there is one to do, which keeps fewer activations
// (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021,
// section 2.2: PipeDream-Flush).
enum class PipelineSchedule { kGPipe, kOneForwardOneBackward };

// Enough for a stage to wait for the others a fifth of the time at most: of m micro-batches and s stages,
// (s − 1) of (m + s − 1).
constexpr int DefaultMicroBatches(int stages) { return 4 * stages; }

// How layers are put on stages where nobody says it by hand. kBalanced: so that the slowest stage takes the
// least time. kSequential: in their order each stage as many as its memory holds.
enum class DeviceMap { kBalanced, kSequential };

struct PipelineOptions {
  std::vector<LayerRange> stages;  // one after another, together all layers
  DeviceMap map = DeviceMap::kBalanced;
  int64_t stage_memory = 0;  // bytes that a stage may take; 0: any
  int micro_batches = 0;     // 0: four for every stage
  PipelineSchedule schedule = PipelineSchedule::kGPipe;

  int count() const { return static_cast<int>(stages.size()); }
  int MicroBatches() const { return micro_batches > 0 ? micro_batches : DefaultMicroBatches(count()); }
};

// Several pipelines divide the global batch among them. The ranks of one are consecutive: rank = pipeline ·
// stages + stage.
struct PipelinePlace {
  int stage = 0;
  int pipeline = 0;
  int pipelines = 1;
};
// Throws Unsupported when `ranks` is no multiple of `stages`.
PipelinePlace PlaceInPipeline(int rank, int ranks, int stages);

// How many stages there are where the manifest does not say: one pipeline over all ranks, unless the model
// has fewer layers with variables.
int AutomaticStages(int ranks, int layers_with_variables);

struct PipelineWork {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int micro_batch = 0;
  bool operator==(const PipelineWork&) const = default;
};
// One step of stage `stage` of `stages`. Backward passes come in the order of the micro-batches in either
// schedule, so that both add the gradients in the same order.
std::vector<PipelineWork> MakeSchedule(PipelineSchedule schedule, int stage, int stages, int micro_batches);
// The most micro-batches whose activations the stage keeps at once in that.
int PassesInFlight(PipelineSchedule schedule, int stage, int stages, int micro_batches);

// What a layer costs a micro-batch.
struct LayerCost {
  double seconds = 0;           // forward and backward
  int64_t bytes = 0;            // of variables, gradients and the optimizer's state
  int64_t bytes_in_flight = 0;  // of activations, for each pass in flight
  bool has_variables = true;    // a stage needs some
};
struct BalanceOptions {
  int stages = 1;
  int micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::kGPipe;
  int64_t memory = 0;  // bytes a stage may take; 0: any
};
// The cut whose slowest stage is the fastest; of those, the one whose first stage is the shortest, and so on.
// Throws BadModel when there is none: fewer layers with variables than stages, or no cut whose stages fit the
// memory.
std::vector<LayerRange> BalanceStages(std::span<const LayerCost> layers, const BalanceOptions& options);

// Each stage has as many layers as its memory holds, but leaves one with variables to each that comes after
// it. Throws BadModel when they do not fit, naming the first layer (by index) that does not.
std::vector<LayerRange> FillStages(std::span<const LayerCost> layers, const BalanceOptions& options);

// What layers `range` take as stage `stage`.
int64_t StageBytes(std::span<const LayerCost> layers, const LayerRange& range, int stage,
                   const BalanceOptions& options);

}  // namespace lockstep::trainer::strategy
