#pragma once

#include "trainer/config.h"
#include "trainer/event_writer.h"
#include "trainer/process_environment.h"
#include "trainer/stop_signal.h"

namespace lockstep::trainer {

struct ServedParts {
  const Config& config;
  const ProcessEnvironment& environment;
  EventWriter& events;
  StopSignal& stop;
};

// A process of a job with parameter servers: what its role is, from the start to the end. Returns the exit
// code, or throws, as Run does (run.h).
int RunServed(const ServedParts& parts);

}  // namespace lockstep::trainer
