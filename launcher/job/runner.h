#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/rendezvous/membership.h"
#include "launcher/spec/training_job.h"

// job/: one attempt of one job on one machine. It ties the folders below it together: placement says what to
// start, process starts and stops it, rendezvous says when, telemetry tells of it. runner.h is the way of a
// job from a checked manifest to an exit code; everything runs on one event loop and one thread, but for the
// HTTP server's.
namespace lockstep::job {

enum class Verbosity {
  kQuiet,  // neither progress nor the launcher's own news; errors and the ranks' output all the same
  kNormal,
  kVerbose,  // also every process that starts and ends
};

struct RunOptions {
  spec::TrainingJob job;
  int replica = 0;         // over all roles, in the manifest's order
  bool whole = false;      // all replicas of all roles run here; `replica` is 0
  bool in_pod = false;     // of a cluster: TPUs are the pod's then
  int64_t attempt = 0;     // of a cluster; elsewhere there is one
  std::string rendezvous;  // replica 0: HOST:PORT to listen on; others: where replica 0 listens
  std::string token_file;  // empty: a new token, in the run's folder
  // Under which the others reach this launcher's machine; empty: as they see it.
  std::string host;
  std::string run_folder;  // empty: a new one (run_folder.h)
  // Membership::Options; empty: a random one. With a name the generations go on where those of the launcher
  // before, of the same name and in the same folder, ended.
  std::string instance;
  // Of an elastic job, at replica 0: how long a lost replica is waited for before the job goes on without it,
  // and how long it then runs at least before it is stopped to grow again.
  std::chrono::seconds elastic_wait{30};
  std::chrono::seconds grow_interval{60};
  int64_t trace_steps = 0;  // of the trainer: leave a trace of so many of the last steps; 0: none
  int input = -1;           // a descriptor that rank 0 of a program reads (standard_input.h); -1: none
  bool force = false;       // start although another job was promised the devices' memory (ledger/)
  Verbosity verbosity = Verbosity::kNormal;
};

// How a run ended, for whoever has to tell a job that failed from a launcher that did.
struct Outcome {
  int exit_code = 0;
  std::string message;         // empty for a plain success
  bool asked_to_stop = false;  // by a signal
  // The failure after which the job was given up; known to replica 0.
  std::optional<rendezvous::FailureReport> failure;
};

// Runs the job to its end; the exit code is the launcher's. What goes wrong is said on standard error. To be
// called inside process::RunGuarded.
Outcome Run(const RunOptions& options);

}  // namespace lockstep::job
