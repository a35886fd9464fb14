#pragma once

#include <string>

#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/spec/training_job.h"

namespace lockstep::job {

// Which layers each process of a pipeline would have, as JSON (trainer/device_map.h), found by a trainer on
// this machine, which opens the data and times the layers but trains nothing; `plan` is of the whole job.
// Empty for any other job. Fails with what the trainer says is wrong, or when it takes longer than a minute.
Result<std::string> MapDevices(const spec::TrainingJob& job, const placement::Plan& plan);

}  // namespace lockstep::job
