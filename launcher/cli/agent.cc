#include "launcher/agent/agent.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "launcher/cli/commands.h"

namespace lockstep::cli {

void AddAgent(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("agent", "Run a pod's part of a job; what the operator's pods start");
  auto options = std::make_shared<agent::AgentOptions>();
  command->add_option("--manifest", options->manifest, "a file with the TrainingJob")->required();
  command->add_option("--attempt", options->attempt, "which Job of the TrainingJob this is; the first is 0")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--role", options->role, "the pod's role, in a job of several");
  command->add_option("--domain", options->domain,
                      "behind the pod's name: under which the others find it, if not by its address");
  command->add_option("--rendezvous", options->rendezvous,
                      "HOST:PORT of replica 0, in a job of several replicas");
  command->add_option("--token-file", options->token_file, "the job's secret, in a job of several replicas");
  command->add_option("--run-dir", options->run_folder, "where logs and other files of this run go")
      ->required();
  command->add_option("--termination-log", options->termination_log,
                      "where the reason of a failure is left for the operator");
  AddLogFormat(*command);
  command->callback([&action, options] { action = [options] { return agent::RunAgent(*options); }; });
}

}  // namespace lockstep::cli
