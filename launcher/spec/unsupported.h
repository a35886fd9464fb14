#pragma once

#include <vector>

#include "launcher/spec/training_job.h"
#include "launcher/spec/validate.h"

namespace lockstep::spec {

// The fields of a valid job that this version reads and checks but has no machinery for. A launcher refuses
// to run such a job and says these by name; it never ignores them. Not among them: what depends on the
// machine (devices.type, which placement decides) and what has no effect on one machine by design
// (ttlSecondsAfterFinished, cleanPodPolicy, scheduleTimeoutSeconds, template).
std::vector<Finding> UnsupportedFields(const TrainingJob& job);

}  // namespace lockstep::spec
