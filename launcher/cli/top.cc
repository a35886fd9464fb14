#include "launcher/top/top.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "launcher/cli/cluster.h"
#include "launcher/cli/commands.h"
#include "launcher/http/client.h"
#include "launcher/job/run_folder.h"
#include "launcher/plugin/status_query.h"
#include "launcher/plugin/status_text.h"

namespace lockstep::cli {

namespace {

constexpr auto kPatience = std::chrono::seconds(2);

struct TopArguments {
  std::string target;  // a URL or a job's name; empty: the newest run here
  bool of_cluster = false;
  Cluster cluster;
};

Result<plugin::JobView> AskLauncher(const std::string& url) {
  const Result<http::HttpResponse> answer =
      http::Get(url + "/status", std::chrono::steady_clock::now() + kPatience);
  if (!answer.ok()) return answer.status();
  std::optional<plugin::JobView> view;
  if (answer->status == 200) view = plugin::ReadLauncher(answer->body);
  if (!view) return Unavailable(url + "/status: what answers is no launcher of Lockstep's");
  return *std::move(view);
}

// The newest run of the job on this machine that answers.
Result<std::string> FindLauncher(const std::string& job) {
  const Result<std::vector<std::string>> runs = job::NewestRuns(job);
  if (!runs.ok()) return runs.status();
  for (const std::string& folder : *runs) {
    const std::string address = job::AddressOfRun(folder);
    if (!address.empty() && AskLauncher("http://" + address).ok()) return "http://" + address;
  }
  return NotFound(job.empty()
                      ? "no job runs on this machine now; name a URL, or a job of a cluster with --cluster"
                      : "no job \"" + job +
                            "\" runs on this machine now; one of a cluster is asked for "
                            "with --cluster");
}

Result<top::Source> FindSource(const TopArguments& arguments) {
  if (arguments.of_cluster || arguments.cluster.asked_for()) {
    if (arguments.target.empty()) return InvalidArgument("which TrainingJob of the cluster?");
    Result<std::unique_ptr<kube::Client>> connected = Connect(arguments.cluster);
    if (!connected.ok()) return connected.status();
    const std::shared_ptr<kube::Client> client = *std::move(connected);
    const kube::ObjectName name{.space = client->default_namespace(), .name = arguments.target};
    return top::Source{.name = name.name + " in " + name.space,
                       .ask = [client, name]() -> Result<plugin::JobView> {
                         auto view = plugin::AskForStatus(*client, {.name = name, .timeout = kPatience});
                         if (!view.ok()) return Unavailable(view.error().message);
                         return *std::move(view);
                       },
                       .interval = std::chrono::seconds(2)};
  }
  std::string url = arguments.target;
  if (!url.starts_with("http://")) {
    Result<std::string> found = FindLauncher(arguments.target);
    if (!found.ok()) return found.status();
    url = *std::move(found);
  }
  while (url.ends_with('/')) url.pop_back();
  return top::Source{.name = url, .ask = [url] { return AskLauncher(url); }};
}

int PrintOnce(const top::Source& source) {
  const Result<plugin::JobView> view = source.ask();
  if (!view.ok()) {
    log::Error(view.status().message());
    return 1;
  }
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::fputs(plugin::RenderStatus(*view, now, std::numeric_limits<int>::max()).c_str(), stdout);
  return contract::kExitDone;
}

int RunTop(const TopArguments& arguments) {
  log::Initialize(log::Level::kInfo, "lockstep");
  const Result<top::Source> source = FindSource(arguments);
  if (!source.ok()) {
    log::Error(source.status().message());
    return 1;
  }
  if (::isatty(STDOUT_FILENO) == 0 || ::isatty(STDIN_FILENO) == 0) return PrintOnce(*source);
  const Status shown = top::Show(*source);
  if (!shown.ok()) log::Error(shown.message());
  return shown.ok() ? contract::kExitDone : 1;
}

}  // namespace

void AddTop(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("top", "Watch the ranks of a job that runs; where the output is no terminal, once");
  auto arguments = std::make_shared<TopArguments>();
  command->add_option(
      "URL|JOB", arguments->target,
      "a launcher's address, http://HOST:PORT, or the name of a job that runs here; by default the "
      "newest one");
  command->add_flag("--cluster", arguments->of_cluster, "JOB is a TrainingJob of a cluster");
  AddCluster(*command, arguments->cluster);
  command->callback([&action, arguments] { action = [arguments] { return RunTop(*arguments); }; });
}

}  // namespace lockstep::cli
