#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/spec/training_job.h"

// The rules of a TrainingJob that more than one field must keep. Pure.
namespace lockstep::spec {

// Something about a job, said of one field. A job of one role named worker is taken to be written in its
// short form (spec.devices, not spec.roles[0].devices).
struct Finding {
  std::string path;
  std::string what;               // "WHAT IS WRONG; WHAT WOULD BE RIGHT"
  std::vector<std::string> with;  // the other fields that take part in it

  bool operator==(const Finding&) const = default;
};

// Every rule that `job` breaks. What one field alone can say (ranges, patterns, enumerations) the reader has
// checked before; jobs built in code are not checked for that.
std::vector<Finding> Validate(const TrainingJob& job);

// kInvalidArgument when `world_size` processes cannot share a global batch of `batch_size` evenly; the
// message names the nearest sizes on either side that can, and the nearest batch sizes. For the reader when
// processesPerReplica is given, and for whoever knows the number of processes only after placement.
Status CheckBatchDivides(int64_t batch_size, int64_t world_size);

}  // namespace lockstep::spec
