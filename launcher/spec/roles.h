#pragma once

#include <string_view>

#include "launcher/spec/training_job.h"

// What a job's roles mean. A replica's number counts over all roles in the manifest's order. Pure.
namespace lockstep::spec {

// Where a replica belongs.
struct Seat {
  int role = 0;   // in TrainingJob::roles
  int index = 0;  // within the role
  bool operator==(const Seat&) const = default;
};

// Of all roles together.
int ReplicasOf(const TrainingJob& job);
// `replica` is one of ReplicasOf(job).
Seat SeatOf(const TrainingJob& job, int replica);
// The number of a role's first replica.
int FirstReplicaOf(const TrainingJob& job, std::string_view role);

// The job is done when all processes of such roles have ended well: worker and chief. The others serve them.
// Beside a chief and a ps the workers do so too: they are servers of TensorFlow's, which never end by
// themselves.
bool EndsJob(const TrainingJob& job, std::string_view role);

// Whether a process that ends badly is started again alone, while the others go on: where servers keep what
// was learnt, that is in a job with a role ps.
bool RestartsAlone(const TrainingJob& job);

// The TPU chips of each of the role's replicas: an even part of devices.topology. 0: it is not even, or the
// role has none.
int TpuChipsOf(const Role& role);

// What runs in the role; null: the trainer.
const Program* ProgramOf(const TrainingJob& job, const Role& role);

}  // namespace lockstep::spec
