#pragma once

#include <string>

#include "common/status.h"
#include "launcher/spec/training_job.h"

namespace lockstep::placement {

// One role of a job, as both steps of the assignment look at it. Points into the job, which must outlive it.
struct RoleView {
  const spec::Role* role = nullptr;
  const spec::Program* program = nullptr;  // null: Lockstep's own trainer
  std::string field = {};                  // where its fields are: "spec." or "spec.roles[1]."
  // The trainer's layers are put on several devices by one process.
  bool spreads_layers = false;

  // kNone for the trainer.
  spec::Framework framework() const {
    return program == nullptr ? spec::Framework::kNone : program->framework;
  }
};

// kInvalidArgument: no such role, or neither a program nor a trainer for it.
Result<RoleView> FindRole(const spec::TrainingJob& job, const std::string& name);

// Adds a sentence once.
void AddNotice(std::vector<std::string>& notices, std::string notice);

// "TensorFlow", as the manifest writes it.
std::string FrameworkName(spec::Framework framework);

}  // namespace lockstep::placement
