#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/runner.h"

// agent/: `lockstep run` as the main process of a pod. The manifest, where replica 0 is and the token come
// from the operator (operator/children.h); the index from the Job controller. Kubernetes starts a container
// again only after 10 s and more, so the pod's first process is a keeper that starts the agent again itself
// (keeper.h).
//
// What a pod's end means is told by its exit code and its termination message:
//
//   0        the job is done
//   2, 3     the job has failed, and all agents agree; the message is a verdict (operator/observe.h)
//   another  this pod is lost: another takes its place
namespace lockstep::agent {

struct AgentOptions {
  std::string manifest;  // a file
  int64_t attempt = 0;
  std::string rendezvous;  // HOST:PORT of replica 0; empty: there is but one replica
  std::string token_file;  // as Kubernetes mounts it; empty: there is but one replica
  std::string role;        // the pod's; empty: the job has but one
  std::string domain;      // behind the pod's name; empty: the others know the pod by its address
  std::string run_folder;
  std::string termination_log = "/dev/termination-log";
};

// Keeps an agent running until the job is over or the pod is asked to stop; returns the pod's exit code.
// Nothing else may run in this process.
int RunAgent(const AgentOptions& options);

// What the pod ends with; whether the agent is started again instead is RestartsAfter(code). Pure.
int PodExitCode(const job::Outcome& outcome);
bool RestartsAfter(int pod_exit_code);

}  // namespace lockstep::agent
