#pragma once

#include "tests/unit/collectives/gpus.h"
#include "tests/unit/strategy/job.h"

namespace lockstep::testing {

// The job with its ranks on the first `gpus` GPUs in turn.
inline Job GpuJob(Job job, int gpus) {
  job.backend = [gpus](int rank) { return AllGpus().entry->make_backend({.ordinal = rank % gpus}); };
  job.communicators = AllGpus().communicators;
  return job;
}

}  // namespace lockstep::testing
