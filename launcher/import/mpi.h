#pragma once

#include "launcher/import/translation.h"

namespace lockstep::importer {

// The pod's command, if it is an mpirun, as the program that Lockstep starts in its place: returns its
// framework, MPI or Horovod. `slots`: processes a replica, where mpirun does not say it.
spec::Framework StartAsMpirunDoes(int slots, Draft& draft);

// A launcher's command and variables as the workers' own; its pod is not needed.
void TakeLauncher(const Draft& launcher, Draft& workers);

// A launcher that starts mpirun, and workers that wait for it with sshd, as one role of workers: what would
// run is the launcher's, the pods are the workers'.
spec::Framework FoldLauncher(const Draft& launcher, int slots, Draft& workers);

}  // namespace lockstep::importer
