#pragma once

#include "trainer/strategy/strategy.h"

namespace lockstep::bench {

struct StepTimes {
  double images_per_second = 0;   // over all ranks; the best round
  double step_seconds = 0;        // of that round
  double collective_seconds = 0;  // of a step of it, on rank 0
};

// Trains the 784–256–256–10 perceptron with Adam and a global batch of 256 in `ranks` forked processes of one
// thread each, on made-up data.
StepTimes MeasureSteps(int ranks, trainer::strategy::Kind kind, trainer::strategy::CrossDeviceOps ops);

}  // namespace lockstep::bench
