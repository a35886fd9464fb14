#pragma once

#include <memory>

#include "common/contract/store.h"
#include "trainer/process_environment.h"
#include "trainer/trace/recorder.h"

namespace lockstep::trainer {

// What `lockstep run --trace` asks of this process; null: nothing.
std::unique_ptr<trace::Recorder> MakeTrace(const ProcessEnvironment& environment);

// Leaves this rank's part where the launcher wants it. Collective, at the end of the training, if there is a
// `store`: times are then those of rank 0's machine, and else of this one. What goes wrong is a warning: the
// training is done all the same.
void LeaveTrace(const trace::Recorder& trace, const ProcessEnvironment& environment, contract::Store* store);

}  // namespace lockstep::trainer
