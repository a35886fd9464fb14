#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "common/contract/exit_codes.h"
#include "common/inherited_environment.h"
#include "launcher/cli/commands.h"
#include "launcher/job/device_map.h"
#include "launcher/job/machine.h"
#include "launcher/job/runner.h"
#include "launcher/job/translate.h"
#include "launcher/placement/render.h"
#include "launcher/process/guard.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/roles.h"
#include "launcher/spec/unsupported.h"
#include "launcher/spec/validate.h"

namespace lockstep::cli {

namespace {

struct RunArguments {
  std::string manifest;
  std::string job;  // which of the manifest's; empty: the only one
  bool dry_run = false;
  bool one_of_several = false;  // --replica was given
  std::string output = "yaml";
  job::RunOptions options;
};

// The job to run; false, and said why, when there is none.
bool ReadJob(const RunArguments& arguments, spec::TrainingJob& job) {
  const Result<std::string> text = spec::ReadManifestFile(arguments.manifest);
  if (!text.ok()) {
    std::cerr << text.status().message() << "\n";
    return false;
  }
  spec::Manifests manifests = spec::ReadManifests(*text, arguments.manifest);
  for (const std::string& notice : manifests.notices) std::cerr << notice << "\n";
  for (const spec::Diagnostic& error : manifests.errors) std::cerr << error.ToString() << "\n";
  if (!manifests.errors.empty()) return false;

  std::string names;
  spec::TrainingJob* found = nullptr;
  for (spec::TrainingJob& each : manifests.jobs) {
    names += (names.empty() ? "" : ", ") + each.name;
    if (arguments.job.empty() ? manifests.jobs.size() == 1 : each.name == arguments.job) found = &each;
  }
  if (found == nullptr) {
    std::cerr << arguments.manifest << ": "
              << (manifests.jobs.empty()  ? "has no TrainingJob"
                  : arguments.job.empty() ? "has several jobs (" + names + "); choose one with --job"
                                          : "has no job \"" + arguments.job + "\", only " + names)
              << "\n";
    return false;
  }
  job = std::move(*found);
  return true;
}

// Whether some of the processes are Lockstep's own trainer.
bool RunsTrainer(const spec::TrainingJob& job) {
  const auto trains = [](const spec::Role& role) { return !role.program.has_value(); };
  return job.trainer.has_value() && std::any_of(job.roles.begin(), job.roles.end(), trains);
}

// False, and said by name, when the job asks for what this version cannot do.
bool CanRun(const RunArguments& arguments, const spec::TrainingJob& job) {
  const auto unsupported = spec::UnsupportedFields(job);
  for (const spec::Finding& finding : unsupported) {
    std::cerr << arguments.manifest << ": " << finding.path << ": " << finding.what << "\n";
  }
  const int replicas = spec::ReplicasOf(job);
  if (arguments.options.replica < 0 || arguments.options.replica >= replicas) {
    std::cerr << "--replica " << arguments.options.replica << ": the job has " << replicas
              << " replicas, numbered from 0\n";
    return false;
  }
  if (arguments.options.replica > 0 &&
      (arguments.options.rendezvous.empty() || arguments.options.token_file.empty())) {
    std::cerr
        << "--replica " << arguments.options.replica
        << " needs --rendezvous HOST:PORT, where replica 0 listens, and --token-file, a copy of its token\n";
    return false;
  }
  if (arguments.options.trace_steps > 0 && !RunsTrainer(job)) {
    std::cerr << "--trace records what lockstep-trainer does, and " << arguments.manifest
              << " has a program (spec.program) instead of spec.trainer: use its framework's own profiler\n";
    return false;
  }
  return unsupported.empty();
}

int DryRun(const RunArguments& arguments, const spec::TrainingJob& job) {
  const placement::Environment inherited = InheritedEnvironment();
  const bool whole = arguments.options.whole;
  const spec::Seat seat = spec::SeatOf(job, arguments.options.replica);
  placement::GenerationFacts facts;
  facts.self = static_cast<size_t>(seat.index);
  facts.master_address = "127.0.0.1";
  facts.trainer_program = job::OwnProgram(job::kTrainer);
  facts.inherited = inherited;
  const std::string role = whole ? "" : job.roles[static_cast<size_t>(seat.role)].name;
  auto files = placement::ReadEnvironmentFiles(job, role);
  if (!files.ok()) {
    std::cerr << "lockstep: " << files.status().message() << "\n";
    return contract::kExitUsage;
  }
  facts.environment_files = std::move(*files);
  const placement::DeviceRequest request = job::RequestDevices(job, role, inherited);
  facts.cuda_plugin = request.cuda_plugin;
  if (arguments.options.trace_steps > 0) {
    facts.trace_folder =
        arguments.options.run_folder.empty() ? "RUN/trace" : arguments.options.run_folder + "/trace";
    facts.trace_steps = arguments.options.trace_steps;
  }
  const auto plan =
      whole ? placement::AssignAll(job, request, facts) : placement::Assign(job, request, facts);
  if (!plan.ok()) {
    std::cerr << "lockstep: " << plan.status().message() << "\n";
    return contract::kExitUsage;
  }
  if (job::DividesBatch(job)) {
    const Status divides = spec::CheckBatchDivides(job.trainer->batch_size, plan->world_size);
    if (!divides.ok()) {
      std::cerr << "lockstep: " << divides.message() << "\n";
      return contract::kExitUsage;
    }
  }
  if (plan->type == spec::DeviceType::kGpu) {
    std::cerr << "lockstep: " << placement::CountDevices(*plan) << "\n";
  }
  for (const std::string& notice : plan->notices) std::cerr << "lockstep: " << notice << "\n";
  const Result<std::string> device_map = job::MapDevices(job, *plan);
  std::cout << placement::RenderPlan(
      *plan, arguments.output == "json" ? placement::PlanFormat::kJson : placement::PlanFormat::kYaml,
      device_map.ok() ? *device_map : "");
  if (device_map.ok()) return contract::kExitDone;
  std::cerr << "lockstep: " << device_map.status().message() << "\n";
  return contract::kExitUsage;
}

int RunCommand(const RunArguments& arguments) {
  spec::TrainingJob job;
  if (!ReadJob(arguments, job) || !CanRun(arguments, job)) return contract::kExitUsage;
  // A job of several roles runs on this machine alone, unless it is said to be one of several.
  RunArguments its = arguments;
  its.options.whole = job.roles.size() > 1 && !arguments.one_of_several;
  if (arguments.dry_run) return DryRun(its, job);
  job::RunOptions options = its.options;
  options.job = std::move(job);
  if (arguments.manifest != "-") options.input = STDIN_FILENO;  // else it was read
  return process::RunGuarded([&options] { return job::Run(options).exit_code; });
}

}  // namespace

void AddRun(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("run", "Run a job on this machine, or as one machine of several");
  auto arguments = std::make_shared<RunArguments>();
  job::RunOptions& options = arguments->options;
  command->add_option("MANIFEST", arguments->manifest, "a file with a TrainingJob, or - for standard input")
      ->required();
  command->add_option("--job", arguments->job, "the job's name, where the manifest has several");
  command->add_flag("--dry-run", arguments->dry_run, "print each process's devices, environment and command");
  command->add_option("-o,--output", arguments->output, "of --dry-run: yaml or json")
      ->check(CLI::IsMember({"yaml", "json"}));
  auto* replica =
      command->add_option("--replica", options.replica,
                          "which of the job's machines this is, counted over all roles; 0 leads. "
                          "Without it, a job of several roles runs on this machine with all of them");
  command->add_option("--rendezvous", options.rendezvous,
                      "HOST:PORT of replica 0: where it listens, and where the others find it");
  command->add_option("--token-file", options.token_file,
                      "the job's secret; replica 0 makes the file if it is not there");
  command->add_option("--run-dir", options.run_folder, "where logs and other files of this run go");
  command
      ->add_option_function<int>(
          "--elastic-wait", [&options](int seconds) { options.elastic_wait = std::chrono::seconds(seconds); },
          "seconds that replica 0 waits for a lost one before the job goes on without it (minReplicas); 30")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option_function<int>(
          "--grow-interval",
          [&options](int seconds) { options.grow_interval = std::chrono::seconds(seconds); },
          "seconds that the job then runs at least before it is stopped to take in one that returned; 60")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--trace", options.trace_steps,
                   "record this many of the last steps of lockstep-trainer's ranks, up to 1000, for "
                   "https://ui.perfetto.dev: trace.json in the run's folder")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--force", options.force,
                    "start even if another job was promised the GPUs' memory that this one takes");
  auto* quiet = command->add_flag_callback(
      "-q,--quiet", [&options] { options.verbosity = job::Verbosity::kQuiet; },
      "only the ranks' output and errors");
  command
      ->add_flag_callback(
          "-v,--verbose", [&options] { options.verbosity = job::Verbosity::kVerbose; },
          "also every process that starts and ends")
      ->excludes(quiet);
  AddLogFormat(*command);
  command->callback([&action, arguments, replica] {
    arguments->one_of_several = replica->count() > 0;
    action = [arguments] { return RunCommand(*arguments); };
  });
}

}  // namespace lockstep::cli
