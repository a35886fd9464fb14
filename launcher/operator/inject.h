#pragma once

#include <nlohmann/json_fwd.hpp>

#include "launcher/operator/children.h"
#include "launcher/spec/training_job.h"

// The launcher for images that do not have it (spec.launcher.inject): an init container copies it from the
// operator's image for jobs into a volume, which the user's container has at kLauncherFolder. Pure.
namespace lockstep::op {

// Changes `pod` (a PodTemplateSpec without the user's template) where the job asks for it.
void InjectLauncher(const spec::TrainingJob& manifest, const ChildOptions& options, nlohmann::json& pod);

}  // namespace lockstep::op
