#pragma once

#include "trainer/event_writer.h"

namespace lockstep::trainer {

// Does what the environment and the manifest in it say, as one rank. Returns the exit code for an end that
// was wanted (done, or stopped with a checkpoint); throws Error for every other.
int Run(EventWriter& events);

}  // namespace lockstep::trainer
