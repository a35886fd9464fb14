#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/import/source.h"
#include "launcher/spec/training_job.h"

// One function a kind, in a file of its name: `object` as a TrainingJob, whose fields the validator has still
// to see. Empty where nothing in it can be a role, which is told then.
namespace lockstep::importer {

// What else was in the files, for the kinds that refer to other objects.
struct Surroundings {
  // Of Kubeflow Trainer: the TrainingRuntimes and ClusterTrainingRuntimes.
  std::vector<Field> runtimes;
};

std::optional<spec::TrainingJob> ReadTfJob(const Field& object);
std::optional<spec::TrainingJob> ReadPyTorchJob(const Field& object);
std::optional<spec::TrainingJob> ReadMpiJob(const Field& object);
std::optional<spec::TrainingJob> ReadTrainJob(const Field& object, const Surroundings& surroundings);
std::optional<spec::TrainingJob> ReadJobSet(const Field& object);
std::optional<spec::TrainingJob> ReadVolcanoJob(const Field& object);

}  // namespace lockstep::importer
