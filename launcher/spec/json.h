#pragma once

#include <string>

#include "launcher/spec/training_job.h"

namespace lockstep::spec {

// The job as a manifest in JSON (one line; `indent` spaces a level if not negative), every default written
// out, keys in the order of docs/manifest.md. Left out: what is empty and means "not given", and fields that
// do not apply (Adam's when the optimizer is SGD). ReadManifests gives the same job back. It is what
// LOCKSTEP_TRAINER_CONFIG holds.
std::string ToJson(const TrainingJob& job, int indent = -1);

// A JSON Schema (draft 2020-12) of a TrainingJob manifest: the same fields, types, ranges, patterns and
// enumerations as the reader's. It cannot say the rules of validate.h. Indented by two spaces.
std::string Schema();

}  // namespace lockstep::spec
