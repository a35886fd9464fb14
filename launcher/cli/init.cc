#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/contract/exit_codes.h"
#include "common/inherited_environment.h"
#include "launcher/cli/commands.h"
#include "launcher/placement/discover.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::cli {

namespace {

constexpr int kMostProcesses = 64;  // more are for people who know why

struct InitArguments {
  std::string file = "job.yaml";
  bool force = false;
  std::vector<std::string> command;  // of a program; empty: Lockstep's trainer
};

struct Machine {
  int gpus = 0;
  int cores = 1;
  std::string words;
};

Machine Look() {
  const placement::Inventory inventory =
      placement::Discover(placement::DiscoverOptionsFrom(InheritedEnvironment(), /*gpus=*/true));
  Machine machine{.cores = placement::UsableCores(inventory)};
  std::string gpu;
  for (const placement::Gpu& each : inventory.gpus) {
    // (A slice is given by hand: devices.visible.)
    if (!each.error.empty() || each.mig) continue;
    ++machine.gpus;
    gpu = each.name + ", " + telemetry::FormatBytes(each.memory_bytes);
  }
  machine.words = std::to_string(machine.cores) + (machine.cores == 1 ? " core" : " cores");
  machine.words += machine.gpus == 0 ? " and no GPU that can be used"
                                     : " and " + std::to_string(machine.gpus) + " x " + gpu;
  return machine;
}

// A line of the manifest with a comment behind it, all in one column.
std::string Said(std::string line, const std::string& comment) {
  constexpr size_t kColumn = 34;
  line.resize(std::max(line.size() + 2, kColumn), ' ');
  return line + "# " + comment + "\n";
}

std::string ProgramText(const std::vector<std::string>& command) {
  std::string words;
  for (const std::string& word : command) words += (words.empty() ? "" : ", ") + nlohmann::json(word).dump();
  return "  program:\n" +
         Said("    framework: None",
              "PyTorch, TensorFlow, JAX, Horovod, MPI: the environment that it expects") +
         "    command: [" + words + "]\n" +
         Said("    # workingDir: /path", "where it runs; by default here") +
         Said("    # env:", "what else is in its environment") + "    # - {name: EPOCHS, value: \"3\"}\n";
}

std::string TrainerText(int processes) {
  return Said("  strategy: {type: Mirrored}", "each has the whole model; their gradients are averaged") +
         "  trainer:\n"
         "    # Drawn by the trainer itself; your own: IDX, CSV or CIFAR10 with a path.\n"
         "    data: {format: Digits, samples: 20000, testSamples: 2000}\n"
         "    model:\n"
         "      layers:\n"
         "      - {type: Dense, units: 128, activation: ReLU}\n"
         "      - {type: Dense, units: 10}\n"
         "      loss: SparseCategoricalCrossentropy\n"
         "      metrics: [Accuracy]\n"
         "    optimizer: {type: Adam, learningRate: 0.001}\n" +
         Said("    batchSize: " + std::to_string(32 * processes), "of all processes together") +
         "    epochs: 5\n" + Said("    seed: 1", "the same one gives the same weights") +
         "    # What it goes on from when it is run again.\n"
         "    checkpoint: {directory: checkpoints, every: 100, keep: 3}\n";
}

std::string Manifest(const Machine& machine, const std::vector<std::string>& command) {
  const bool gpus = machine.gpus > 0;
  const int processes = std::clamp(gpus ? machine.gpus : machine.cores, 1, kMostProcesses);
  return "# lockstep run FILE trains this; lockstep run FILE --dry-run says what each process would get.\n"
         "# All fields: docs/manifest.md, or kubectl explain trainingjob.spec.\n"
         "apiVersion: lockstep.dev/v1alpha1\n"
         "kind: TrainingJob\n"
         "metadata:\n"
         "  name: first-job\n"
         "spec:\n"
         "  # This machine has " +
         machine.words + ".\n" +
         Said("  processesPerReplica: " + std::to_string(processes),
              gpus ? "one for each GPU" : "one for each core") +
         Said(gpus ? "  devices: {type: GPU}" : "  devices: {type: CPU}",
              gpus ? "CPU: without them" : "GPU: one for each process, where there are some") +
         (command.empty() ? TrainerText(processes) : ProgramText(command)) + "  runPolicy:\n" +
         Said("    maxRestarts: 3", "so often all go on after one has failed");
}

int Write(const std::string& text, const InitArguments& arguments) {
  if (arguments.file == "-") {
    std::cout << text;
    return contract::kExitDone;
  }
  if (!arguments.force && ::access(arguments.file.c_str(), F_OK) == 0) {
    std::cerr << arguments.file
              << " is there already: choose another with -o, or write over it with --force\n";
    return contract::kExitUsage;
  }
  std::ofstream file(arguments.file);
  file << text << std::flush;
  if (!file) {
    std::cerr << arguments.file << ": " << std::strerror(errno) << "\n";
    return contract::kExitUsage;
  }
  std::cout << arguments.file << " is written; lockstep run " << arguments.file << "\n";
  return contract::kExitDone;
}

}  // namespace

void AddInit(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("init", "Write a manifest with comments, for what this machine has");
  auto arguments = std::make_shared<InitArguments>();
  command->add_option("-o,--output", arguments->file, "the file, or - for standard output; job.yaml");
  command->add_flag("--force", arguments->force, "write over a file that is there");
  command->add_option("COMMAND", arguments->command,
                      "a program of yours to run: lockstep init -- python3 train.py");
  command->callback([&action, arguments] {
    action = [arguments] { return Write(Manifest(Look(), arguments->command), *arguments); };
  });
}

}  // namespace lockstep::cli
