#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

#include "common/contract/environment.h"
#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "common/status.h"
#include "launcher/agent/keeper.h"
#include "launcher/job/run_folder.h"
#include "launcher/operator/names.h"
#include "launcher/operator/observe.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/roles.h"

namespace lockstep::agent {

namespace {

constexpr int kAskedToStop = contract::kExitSignalBase + SIGTERM;

Result<int> IndexOfPod() {
  const char* text = std::getenv("JOB_COMPLETION_INDEX");
  if (text == nullptr) {
    return InvalidArgument("JOB_COMPLETION_INDEX is not set: this is not a pod of an Indexed Job");
  }
  const std::string_view digits(text);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index < 0) {
    return InvalidArgument("JOB_COMPLETION_INDEX is \"" + std::string(digits) +
                           "\"; expected a number from 0");
  }
  return index;
}

// Of the pod: that of its Job, and its index.
std::string HostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// A mounted Secret can be read by the pod's group; the token's file may be by nobody but its owner.
Result<std::string> OwnCopyOfToken(const AgentOptions& options) {
  std::ifstream file(options.token_file);
  const std::string token((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.good() && !file.eof()) return Unavailable("the token " + options.token_file + " cannot be read");
  const std::string copy = options.run_folder + "/job-token";
  LOCKSTEP_RETURN_IF_ERROR(job::WriteFile(copy, token));
  if (::chmod(copy.c_str(), 0600) != 0) return Status::FromErrno(errno, "chmod " + copy);
  return copy;
}

Result<job::RunOptions> Prepare(const AgentOptions& options) {
  const Result<int> index = IndexOfPod();
  LOCKSTEP_RETURN_IF_ERROR(index.status());
  const Result<std::string> text = spec::ReadManifestFile(options.manifest);
  LOCKSTEP_RETURN_IF_ERROR(text.status());
  spec::Manifests read = spec::ReadManifests(*text, options.manifest);
  if (!read.errors.empty()) return InvalidArgument(read.errors.front().ToString());
  if (read.jobs.size() != 1) return InvalidArgument(options.manifest + ": has not one TrainingJob");

  job::RunOptions run{.job = std::move(read.jobs.front()),
                      .in_pod = true,
                      .attempt = options.attempt,
                      .run_folder = options.run_folder};
  if (const char* uid = std::getenv(contract::kPodUid)) run.instance = uid;
  const std::string name = options.role.empty() ? run.job.roles.front().name : options.role;
  const auto role = std::find_if(run.job.roles.begin(), run.job.roles.end(),
                                 [&](const spec::Role& each) { return each.name == name; });
  if (role == run.job.roles.end()) return InvalidArgument("--role " + name + ": the job has no such role");
  if (*index >= role->replicas) {
    return InvalidArgument("the pod's index is " + std::to_string(*index) + " of " +
                           std::to_string(role->replicas) + " replicas");
  }
  run.replica = spec::FirstReplicaOf(run.job, name) + *index;
  if (spec::ReplicasOf(run.job) == 1) return run;
  if (options.rendezvous.empty() || options.token_file.empty()) {
    return InvalidArgument("a job of several replicas needs --rendezvous and --token-file");
  }
  const auto folder = job::RunFolder::Create(options.run_folder, run.job.name);
  LOCKSTEP_RETURN_IF_ERROR(folder.status());
  Result<std::string> token = OwnCopyOfToken(options);
  LOCKSTEP_RETURN_IF_ERROR(token.status());
  run.token_file = std::move(*token);
  if (!options.domain.empty()) run.host = HostName() + "." + options.domain;
  // Replica 0 is reached under many names and addresses: it listens on all of them.
  run.rendezvous =
      run.replica == 0 ? options.rendezvous.substr(options.rendezvous.rfind(':')) : options.rendezvous;
  return run;
}

// In place, since it is a file that the kubelet mounted.
void Leave(const AgentOptions& options, const op::Verdict& verdict) {
  const UniqueFd file(
      ::open(options.termination_log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  const std::string text = op::VerdictText(verdict);
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    log::WriteLine(log::Level::kError, "lockstep",
                   options.termination_log + " cannot be written; the job ended with exit code " +
                       std::to_string(verdict.exit_code) + ": " + verdict.message);
  }
}

op::Verdict VerdictOf(const job::Outcome& outcome, int replica) {
  op::Verdict verdict{.exit_code = outcome.exit_code,
                      .reason = outcome.exit_code == contract::kExitUsage ? "CannotRun" : "Error",
                      .message = outcome.message,
                      .replica = replica};
  if (outcome.failure) {
    if (!outcome.failure->reason.empty()) verdict.reason = outcome.failure->reason;
    verdict.replica = outcome.failure->replica;
    verdict.process = outcome.failure->process;
  }
  return verdict;
}

int RunOnce(const AgentOptions& options) {
  const Result<job::RunOptions> run = Prepare(options);
  job::Outcome outcome;
  int replica = 0;
  if (run.ok()) {
    replica = run->replica;
    outcome = job::Run(*run);
  } else {
    log::WriteLine(log::Level::kError, "lockstep", run.status().message());
    outcome = {.exit_code = run.status().retryable() ? contract::kExitRendezvous : contract::kExitUsage,
               .message = run.status().message()};
  }
  const int code = PodExitCode(outcome);
  if (code == contract::kExitUsage || code == contract::kExitPermanent) {
    Leave(options, VerdictOf(outcome, replica));
  }
  return code;
}

}  // namespace

int PodExitCode(const job::Outcome& outcome) {
  if (outcome.exit_code == contract::kExitDone) return contract::kExitDone;
  if (outcome.asked_to_stop) return kAskedToStop;
  switch (outcome.exit_code) {
    case contract::kExitUsage:
      return outcome.failure ? contract::kExitPermanent : contract::kExitUsage;
    case contract::kExitRendezvous:
      // Of a rank that failed with it too often, or because the others did not come?
      return outcome.failure ? contract::kExitPermanent : contract::kExitRendezvous;
    case contract::kExitSuperseded:  // of the trainer, or because another pod has this one's place
      return outcome.failure && !outcome.failure->own_trainer ? contract::kExitPermanent
                                                              : contract::kExitSuperseded;
    case contract::kExitDeviceLost:  // another machine has others
    case contract::kExitCheckpointed:
      return outcome.exit_code;
    default:
      return contract::kExitPermanent;
  }
}

bool RestartsAfter(int pod_exit_code) {
  switch (pod_exit_code) {
    case contract::kExitDone:
    case contract::kExitUsage:
    case contract::kExitPermanent:
    case contract::kExitSuperseded:
    case contract::kExitDeviceLost:
    case kAskedToStop:
      return false;
    default:
      return true;
  }
}

int RunAgent(const AgentOptions& options) {
  return Keep([&options] { return RunOnce(options); }, RestartsAfter);
}

}  // namespace lockstep::agent
