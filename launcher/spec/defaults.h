#pragma once

#include <functional>
#include <string_view>

#include "launcher/spec/training_job.h"

namespace lockstep::spec {

// Fills in what the structs' own initialisers cannot say: defaults that depend on other fields. `given` says
// whether a manifest has the field at a path ("spec.strategy.type"). The job has at least one role.
void SetDefaults(TrainingJob& job, const std::function<bool(std::string_view path)>& given);

}  // namespace lockstep::spec
