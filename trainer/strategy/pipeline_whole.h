#pragma once

#include <functional>
#include <span>
#include <vector>

#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/pipeline_facts.h"
#include "trainer/strategy/pipeline_plan.h"
#include "trainer/strategy/strategy.h"

// What the stages of a pipeline have of the whole model, put together and taken apart, in canonical order.
namespace lockstep::trainer::strategy {

using StagesFacts = std::vector<StageFacts>;  // by stage

// Of all stages.
std::vector<NamedShape> AllVariables(const StagesFacts& facts);
std::vector<NamedShape> AllStateVariables(const StagesFacts& facts);
// As Strategy::ShareOut among several ranks: each stage's bring what is theirs.
Shares ShareOutStages(const StagesFacts& facts, const World& world, int ranks);
// The same share by index among the variables and the state of this stage, which it is of.
Share WithinStage(const StagesFacts& facts, int stage, Share share);

// A stage's part of a checkpoint: views.
struct StageState {
  std::span<const float> parameters;
  std::vector<std::span<const float>> slots;
  std::span<const float> state;
};
StageState StageOf(const StagesFacts& facts, int stage, const WholeState& whole);

// How many floats the whole has.
size_t WholeFloats(const StagesFacts& facts, int slots);

struct CollectOptions {
  collectives::LocalGroup& group;             // all ranks
  const collectives::SharedSegment& segment;  // of WholeFloats, of nobody else's use
  const PipelinePlace& place;
  std::function<collectives::Deadline()> deadline;  // of a wait that begins now
};
// Collective: every stage's first rank writes into shared memory, which rank 0 reads and gives back. `flats`:
// parameters and slots of this rank's stage, in the host's memory; needed on those that write.
void CollectStages(const StagesFacts& facts, const CollectOptions& options, const Model& model,
                   std::span<const float* const> flats, WholeState* to);

}  // namespace lockstep::trainer::strategy
