#pragma once

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// One process: each range of the parameters is updated as soon as its gradients are complete, while they are
// in the cache; when the whole gradient is known, if it is clipped by its norm.
class OneDevice final : public Replicated {
 public:
  using Replicated::Replicated;

 protected:
  StepResult Step(const Batch& batch) override;
};

}  // namespace lockstep::trainer::strategy
