#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/exit_codes.h"
#include "common/log.h"
#include "launcher/cli/commands.h"
#include "launcher/history/plot.h"
#include "launcher/history/run.h"
#include "launcher/http/client.h"
#include "launcher/job/run_folder.h"
#include "launcher/plugin/status_text.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::cli {

namespace {

constexpr size_t kEventsShown = 30;

struct RunsArguments {
  std::string job;  // of list; empty: all
  std::vector<std::string> runs;
  std::string output;
  bool json = false;
};

// "JOB": its newest run; "JOB/RUN" as list prints it; or a folder.
Result<history::Run> FindRun(const std::string& name) {
  if (std::filesystem::is_directory(name)) return history::ReadRun(name);
  const std::string job = name.substr(0, name.find('/'));
  const Result<std::vector<std::string>> folders = job::NewestRuns(job);
  if (!folders.ok()) return folders.status();
  for (const std::string& folder : *folders) {
    if (job != name && !folder.ends_with("/" + name)) continue;
    Result<history::Run> run = history::ReadRun(folder);
    if (run.ok()) return run;
  }
  return NotFound("no run \"" + name + "\" on this machine; lockstep runs list shows those there are");
}

std::string Took(const history::Run& run) {
  return run.took_seconds ? telemetry::FormatDuration(*run.took_seconds) : "";
}

// A launcher that was killed had no time to say how it ended.
std::string Phase(const history::Run& run) {
  if (run.took_seconds) return run.phase;
  const std::string address = job::AddressOfRun(run.folder);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  return !address.empty() && http::Get("http://" + address + "/healthz", deadline).ok() ? run.phase : "Lost";
}

int List(const RunsArguments& arguments) {
  const Result<std::vector<std::string>> folders =
      job::NewestRuns(arguments.job, std::numeric_limits<size_t>::max());
  if (!folders.ok()) return Complain(folders.status().message(), kExitFailed);
  std::vector<std::vector<std::string>> rows;
  auto all = nlohmann::ordered_json::array();
  for (const std::string& folder : *folders) {
    const Result<history::Run> run = history::ReadRun(folder);
    if (!run.ok()) continue;  // of an older version, or hardly begun
    rows.push_back({run->name, run->start_time, Took(*run), Phase(*run),
                    run->step ? std::to_string(*run->step) : "", run->loss, run->accuracy,
                    run->restarts > 0 ? std::to_string(run->restarts) : ""});
    if (arguments.json) {
      auto status = nlohmann::ordered_json::parse(run->status_text, nullptr, /*allow_exceptions=*/false);
      all.push_back({{"run", run->name}, {"folder", folder}, {"status", std::move(status)}});
    }
  }
  if (arguments.json) {
    std::puts(all.dump(2).c_str());
    return contract::kExitDone;
  }
  if (rows.empty()) {
    std::puts("no runs yet");
    return contract::kExitDone;
  }
  const std::vector<std::string> lines = telemetry::FormatTable(
      {"RUN", "STARTED", "TOOK", "PHASE", "STEP", "LOSS", "ACCURACY", "RESTARTS"}, rows);
  for (const std::string& line : lines) std::puts(line.c_str());
  return contract::kExitDone;
}

int Show(const RunsArguments& arguments) {
  const Result<history::Run> run = FindRun(arguments.runs.front());
  if (!run.ok()) return Complain(run.status().message(), kExitFailed);
  if (const auto view = plugin::ReadLauncher(run->status_text)) {
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    std::fputs(plugin::RenderStatus(*view, now, std::numeric_limits<int>::max()).c_str(), stdout);
  }
  const std::vector<std::string> events = history::ReadEvents(run->folder, kEventsShown);
  if (!events.empty()) std::puts("");
  for (const std::string& event : events) std::puts(event.c_str());
  std::printf("\nfiles in %s\n", run->folder.c_str());
  return contract::kExitDone;
}

int Plot(const RunsArguments& arguments) {
  std::vector<history::Curve> curves;
  for (const std::string& name : arguments.runs) {
    const Result<history::Run> run = FindRun(name);
    if (!run.ok()) return Complain(run.status().message(), kExitFailed);
    curves.push_back({.name = run->name, .points = history::ReadPoints(run->folder)});
    if (curves.back().points.empty()) return Complain(run->name + " has told of no step", kExitFailed);
  }
  const Status written = job::WriteFile(arguments.output, history::Plot(curves));
  if (!written.ok()) return Complain(written.message(), kExitFailed);
  std::printf("%s\n", arguments.output.c_str());
  return contract::kExitDone;
}

}  // namespace

void AddRuns(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("runs", "List what ran on this machine, and show or draw it");
  command->require_subcommand(1);
  auto arguments = std::make_shared<RunsArguments>();
  const auto run = [&action, arguments](CLI::App* which, int (*what)(const RunsArguments&)) {
    which->callback([&action, arguments, what] {
      action = [arguments, what] {
        log::Initialize(log::Level::kInfo, "lockstep");
        return what(*arguments);
      };
    });
  };
  const char* const kName = "a job, for its newest run; JOB/RUN as list prints it; or a run's folder";

  auto* list = command->add_subcommand("list", "The runs of all jobs, the newest first");
  list->add_option("JOB", arguments->job, "only its runs");
  list->add_flag("--json", arguments->json, "with all that is known of each");
  run(list, List);

  auto* show = command->add_subcommand("show", "How a run went: its ranks, its last events, its files");
  show->add_option("RUN", arguments->runs, kName)->required()->expected(1);
  run(show, Show);

  auto* plot = command->add_subcommand("plot", "Draw the loss and the throughput of one or several runs");
  plot->add_option("RUN", arguments->runs, kName)->required();
  plot->add_option("-o,--output", arguments->output, "the picture, FILE.svg")->required();
  run(plot, Plot);
}

}  // namespace lockstep::cli
