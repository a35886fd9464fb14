#pragma once

#include <string>

#include "launcher/spec/training_job.h"

// job/: one attempt of one job on one machine. It ties the folders below it together: placement says what to
// start, process starts and stops it, rendezvous says when, telemetry tells of it. runner.h is the way of a
// job from a checked manifest to an exit code; everything runs on one event loop and one thread, but for the
// HTTP server's.
namespace lockstep::job {

struct RunOptions {
  spec::TrainingJob job;
  int replica = 0;
  std::string rendezvous;  // replica 0: HOST:PORT to listen on; others: where replica 0 listens
  std::string token_file;  // empty: a new token, in the run's folder
  std::string run_folder;  // empty: a new one (run_folder.h)
  bool force = false;      // start although another job was promised the devices' memory (ledger/)
  bool quiet =
      false;  // neither progress nor the launcher's own news; errors and the ranks' output all the same
};

// Runs the job to its end and returns the launcher's exit code. What goes wrong is said on standard error. To
// be called inside process::RunGuarded.
int Run(const RunOptions& options);

}  // namespace lockstep::job
