#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/control_line.h"
#include "common/contract/environment.h"
#include "common/contract/event.h"
#include "launcher/spec/json.h"
#include "launcher/spec/manifest.h"
#include "tests/paths.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::testing {

// Real lockstep-trainer processes, and what a launcher is to them: the store, their environment, the pipes.
// Machines are played: all are this one. Kills what it started.
class PlayedLauncher {
 public:
  struct Options {
    nlohmann::json spec;
    int machines = 1;
    int local_size = 1;
    std::string ledger;
  };

  struct Process {
    pid_t pid = -1;
    UniqueFd events, control;
    std::string received;
    bool regroups = false;
    std::optional<int64_t> holds;    // the last answer, until the next generation
    std::optional<int64_t> resumed;  // in this generation
    int64_t step = 0;
    int answers = 0;
  };

  explicit PlayedLauncher(const Options& options) : options_(options) {
    const nlohmann::json manifest = {{"apiVersion", "lockstep.dev/v1alpha1"},
                                     {"kind", "TrainingJob"},
                                     {"metadata", {{"name", "mnist"}}},
                                     {"spec", options.spec}};
    const spec::Manifests read = spec::ReadManifests(manifest.dump(), "job.json");
    for (const auto& error : read.errors) ADD_FAILURE() << error.ToString();
    std::ofstream(folder_.File("config")) << spec::ToJson(read.jobs.at(0));
    const contract::Token token = *contract::Token::Create(folder_.File("token"));
    server_ = std::make_unique<rendezvous::testing::ServerThread>(
        [&](rendezvous::StoreServer::Options& store) { store.token = token; });
    server_->Begin(0, size());
    processes_.resize(static_cast<size_t>(size()));
    for (int r = 0; r < size(); ++r) Start(r);
  }
  ~PlayedLauncher() {
    for (int r = 0; r < static_cast<int>(processes_.size()); ++r) Kill(r);
  }

  int size() const { return options_.machines * options_.local_size; }
  int64_t generation() const { return generation_; }
  Process& at(int rank) { return processes_[static_cast<size_t>(rank)]; }
  std::string Log(int rank) const { return ReadText(folder_.File("log." + std::to_string(rank))); }

  // Takes events in until `condition` holds; false after a minute.
  template <typename Condition>
  bool Until(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      TakeEvents(20);
    }
    return true;
  }

  void Kill(int rank) {
    Process& process = at(rank);
    if (process.pid <= 0) return;
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    process = {};
  }

  // Those that live answer, told to at once or only if they do not by themselves; ends the generation.
  ::testing::AssertionResult Gather(bool told) {
    const auto answered = [&] {
      for (const Process& process : processes_) {
        if (process.pid > 0 && !process.holds) return false;
      }
      return true;
    };
    if (told || !Until(answered, std::chrono::seconds(1))) TellAll("{\"control\":\"regroup\"}\n");
    const bool all = Until(answered);
    server_->On([](rendezvous::StoreServer& server) { server.EndGeneration("over"); });
    return all ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << "somebody does not answer";
  }

  // A new generation of so many machines: those that hold something live on, the others are started.
  void Next(int machines) {
    for (int r = machines * options_.local_size; r < size(); ++r) Kill(r);
    options_.machines = machines;
    processes_.resize(static_cast<size_t>(size()));
    server_->Begin(++generation_, size());
    for (int r = 0; r < size(); ++r) {
      if (at(r).pid <= 0) {
        Start(r);
        continue;
      }
      at(r).holds.reset();
      at(r).resumed.reset();
      Tell(r, *contract::EncodeControl(contract::GenerationControl{.environment = Environment(r)}));
    }
  }

  void Tell(int rank, const std::string& line) {
    EXPECT_EQ(::write(at(rank).control.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  void TellAll(const std::string& line) {
    for (int r = 0; r < size(); ++r) {
      if (at(r).pid > 0) Tell(r, line);
    }
  }

  // The exit code, of a process that ends in time.
  int Wait(int rank) {
    Process& process = at(rank);
    int status = 0;
    const bool ended = Until([&] { return ::waitpid(process.pid, &status, WNOHANG) == process.pid; });
    if (!ended) return -1;
    process.pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  std::map<std::string, std::string> Environment(int rank) const {
    const int local = options_.local_size;
    const auto text = [](int number) { return std::to_string(number); };
    std::map<std::string, std::string> environment = {{contract::kRank, text(rank)},
                                                      {contract::kWorldSize, text(size())},
                                                      {contract::kLocalRank, text(rank % local)},
                                                      {contract::kLocalWorldSize, text(local)},
                                                      {contract::kGroupRank, text(rank / local)},
                                                      {contract::kGroupWorldSize, text(options_.machines)},
                                                      {contract::kOmpThreads, "1"},
                                                      {contract::kJob, "mnist"},
                                                      {contract::kGeneration, std::to_string(generation_)},
                                                      {contract::kRun, ""},
                                                      {contract::kStoreAddress, server_->address()},
                                                      {contract::kTokenFile, folder_.File("token")},
                                                      {contract::kTrainerConfig, folder_.File("config")},
                                                      {contract::kEventsFd, "100"},
                                                      {contract::kControlFd, "101"}};
    return environment;
  }

  void Start(int rank) {
    Process& process = at(rank);
    process = {};
    int events[2], control[2];
    ASSERT_EQ(::pipe2(events, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(control, O_CLOEXEC), 0);
    const UniqueFd events_in(events[1]), control_out(control[0]);
    process.events.reset(events[0]);
    process.control.reset(control[1]);
    ::fcntl(events[0], F_SETFL, O_NONBLOCK);
    std::map<std::string, std::string> environment = Environment(rank);
    if (!options_.ledger.empty()) environment["TRAINING_LEDGER"] = options_.ledger;
    std::vector<std::string> lines;
    for (const auto& [name, value] : environment) lines.push_back(name + "=" + value);
    std::vector<char*> pointers;
    for (std::string& line : lines) pointers.push_back(line.data());
    pointers.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, events_in.get(), 100);
    ::posix_spawn_file_actions_adddup2(&actions, control_out.get(), 101);
    const std::string log = folder_.File("log." + std::to_string(rank));
    ::posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
    std::string program = LOCKSTEP_BIN_DIR "/lockstep-trainer";
    char* const arguments[] = {program.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&process.pid, program.c_str(), &actions, nullptr, arguments, pointers.data()), 0);
    ::posix_spawn_file_actions_destroy(&actions);
  }

  void TakeEvents(int milliseconds) {
    std::vector<pollfd> ready;
    for (const Process& process : processes_) {
      ready.push_back({.fd = process.events.get(), .events = POLLIN, .revents = 0});
    }
    ::poll(ready.data(), ready.size(), milliseconds);
    for (Process& process : processes_) {
      char bytes[4096];
      ssize_t n = 0;
      while (process.events && (n = ::read(process.events.get(), bytes, sizeof bytes)) > 0) {
        process.received.append(bytes, static_cast<size_t>(n));
      }
      if (n == 0) process.events.reset();
      for (size_t end; (end = process.received.find('\n')) != std::string::npos;) {
        const auto event = contract::ParseEvent(process.received.substr(0, end));
        process.received.erase(0, end + 1);
        if (event.ok()) Take(*event, &process);
      }
    }
  }

  static void Take(const contract::Event& event, Process* process) {
    if (const auto* ready = std::get_if<contract::ReadyEvent>(&event)) process->regroups = ready->regroups;
    if (const auto* step = std::get_if<contract::StepEvent>(&event)) process->step = step->step;
    if (const auto* resumed = std::get_if<contract::ResumedEvent>(&event)) process->resumed = resumed->step;
    if (const auto* regroup = std::get_if<contract::RegroupEvent>(&event)) {
      process->holds = regroup->step;
      process->answers += 1;
    }
  }

  Options options_;
  TemporaryFolder folder_;
  std::unique_ptr<rendezvous::testing::ServerThread> server_;
  int64_t generation_ = 0;
  std::vector<Process> processes_;
};

}  // namespace lockstep::testing
