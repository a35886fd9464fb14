#pragma once

#include <string>
#include <vector>

#include "launcher/spec/training_job.h"
#include "launcher/spec/validate.h"

// The parts of Validate(), one file each. They append what they find.
namespace lockstep::spec {

void CheckRoles(const TrainingJob& job, std::vector<Finding>* findings);
void CheckStrategy(const TrainingJob& job, std::vector<Finding>* findings);
void CheckTrainer(const TrainingJob& job, const Trainer& trainer, std::vector<Finding>* findings);
void CheckPrograms(const TrainingJob& job, std::vector<Finding>* findings);
void CheckRun(const TrainingJob& job, std::vector<Finding>* findings);

// "spec" for the one role of the short form, "spec.roles[2]" otherwise.
std::string PathOfRole(const TrainingJob& job, size_t index);
// The role named worker, or null.
const Role* WorkerOf(const TrainingJob& job);
// Its path, or "spec".
std::string PathOfWorker(const TrainingJob& job);

}  // namespace lockstep::spec
