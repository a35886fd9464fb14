#pragma once

#include <cstdint>
#include <vector>

#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// What the ranks of a pipeline must know of one another's stages.
struct StageFacts {
  // Floats of a flat buffer that are neighbours in canonical order too.
  struct Run {
    int64_t begin = 0;
    int64_t size = 0;
  };
  int64_t parameters = 0;      // floats of its flat buffers
  int64_t canonical = 0;       // floats of its variables in canonical order
  int64_t state = 0;           // floats of its layers' state
  int64_t output_bytes = 0;    // a sample
  int64_t gradient_bytes = 0;  // a sample, of its outputs
  std::vector<NamedShape> variables, state_variables;
  std::vector<UpdateRange> ranges;
  std::vector<Run> order;  // one after another: the canonical order
};

// Returns, on every rank, the facts of every stage, when every rank has said its own through the store.
// Throws BadModel when ranks differ in the stages, the seed, the model or the optimizer, and Unsupported for
// a model that no pipeline can train; every rank then throws. RendezvousFailed naming who did not come.
std::vector<StageFacts> ExchangeFacts(const Options& options, const Model& model, int slots, uint64_t seed);

}  // namespace lockstep::trainer::strategy
