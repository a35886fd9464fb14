#pragma once

#include "trainer/event_writer.h"

namespace lockstep::trainer {

// Does what the environment and the manifest in it say, as one rank; in one generation after the other, where
// the launcher lets a process live on (docs/contract.md, "Regrouping"). Returns the exit code for an end that
// was wanted (done, or stopped with a checkpoint); throws Error for every other.
int Run(EventWriter& events);

}  // namespace lockstep::trainer
