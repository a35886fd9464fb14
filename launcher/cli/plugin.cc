#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "launcher/cli/cluster.h"
#include "launcher/cli/commands.h"
#include "launcher/plugin/pod_logs.h"
#include "launcher/plugin/status_query.h"
#include "launcher/plugin/status_text.h"

namespace lockstep::cli {

namespace {

constexpr int kLinesBesideRanks = 14;
constexpr int kLinesWithoutTerminal = 10'000;

struct StatusArguments {
  Cluster cluster;
  std::string job;
};

struct LogsArguments {
  Cluster cluster;
  std::string job;
  plugin::LogOptions options;
};

int LinesForRanks() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return kLinesWithoutTerminal;
  return std::max(8, size.ws_row - kLinesBesideRanks);
}

int ShowStatus(const StatusArguments& arguments) {
  const auto client = Connect(arguments.cluster);
  if (!client.ok()) return Complain(client.status().message(), kExitFailed);
  const kube::ObjectName name{.space = (*client)->default_namespace(), .name = arguments.job};
  const auto view = plugin::AskForStatus(**client, {.name = name});
  if (!view.ok()) return Complain(view.error().message, kExitFailed);
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::fputs(plugin::RenderStatus(*view, now, LinesForRanks()).c_str(), stdout);
  return contract::kExitDone;
}

int ShowLogs(LogsArguments arguments) {
  const auto client = Connect(arguments.cluster);
  if (!client.ok()) return Complain(client.status().message(), kExitFailed);
  arguments.options.name = {.space = (*client)->default_namespace(), .name = arguments.job};
  const Status status =
      plugin::ShowLogs(**client, arguments.options,
                       {.write =
                            [](std::string_view line) {
                              return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
                                     std::fflush(stdout) == 0;
                            },
                        .complain = [](const std::string& problem) { log::Warning(problem); }});
  return status.ok() ? contract::kExitDone : Complain(status.message(), kExitFailed);
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("status", "Show a TrainingJob of a cluster with its ranks (kubectl lockstep)");
  auto arguments = std::make_shared<StatusArguments>();
  command->add_option("NAME", arguments->job, "of the TrainingJob")->required();
  AddCluster(*command, arguments->cluster);
  command->callback([&action, arguments] { action = [arguments] { return ShowStatus(*arguments); }; });
}

void AddLogs(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("logs", "Show the output of all ranks of a TrainingJob (kubectl lockstep)");
  auto arguments = std::make_shared<LogsArguments>();
  command->add_option("NAME", arguments->job, "of the TrainingJob")->required();
  AddCluster(*command, arguments->cluster);
  plugin::LogOptions& options = arguments->options;
  command->add_option("--rank", options.rank, "only this one's")->check(CLI::NonNegativeNumber);
  command->add_option("--replica", options.replica, "only of pods with this index")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("-f,--follow", options.follow, "go on until the job is over");
  command->add_option("--tail", options.tail, "the last lines of each pod")->check(CLI::NonNegativeNumber);
  command->add_flag("--timestamps", options.timestamps, "the time in front of each line");
  command->callback([&action, arguments] { action = [arguments] { return ShowLogs(*arguments); }; });
}

}  // namespace lockstep::cli
