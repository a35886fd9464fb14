#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/contract/store.h"
#include "trainer/checkpointing.h"
#include "trainer/model/model.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// What of a step is noted in the ledger.
struct StepNote {
  int64_t epoch = 0;
  int64_t first = 0;
  int64_t count = 0;  // 0: no step yet
};

// What is left to do after a step, in this order.
enum class AfterStep : int64_t { kEpoch, kSave, kNothing };

// What a process takes from one generation into the next: a checkpoint in memory, or its parts of one, and
// what is not yet done about its last step.
struct Held {
  strategy::WholeState state;
  std::vector<strategy::StatePart> parts;  // as Committed's, as `division`
  int division = 0;
  TrainingPosition position;
  StepNote last;  // the step that position.step counts
  AfterStep left = AfterStep::kNothing;
};

// Collective, after Strategy::Setup: the whole of the highest step that the ranks together have the whole of,
// each part from the first rank that has it; none where there is no such step. `held` is what this rank has,
// by step. `slots` of the optimizer. A store is needed where there are several ranks. Throws
// RendezvousFailed, CollectiveLost.
std::optional<Held> HandOver(const strategy::World& world, contract::Store* store,
                             std::chrono::milliseconds timeout, strategy::Strategy& strategy,
                             const Model& model, int slots, const std::vector<Held>& held);

}  // namespace lockstep::trainer
