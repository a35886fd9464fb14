#pragma once

#include <fcntl.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>

#include "common/unique_fd.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/checkpoint.h"

namespace lockstep::testing {

struct Digits {
  int processes = 4;
  int samples = 4096;  // 16 steps an epoch
  int epochs = 3;
  int seed = 1;
  std::string checkpoints;  // a folder; empty: none
  int every = 5;
};

// 784–64–10 on generated digits, batch 256.
inline nlohmann::json DigitsSpec(const Digits& digits) {
  nlohmann::json spec = {
      {"processesPerReplica", digits.processes},
      {"devices", {{"type", "CPU"}}},
      {"trainer",
       {{"data", {{"format", "Digits"}, {"samples", digits.samples}, {"testSamples", 1000}}},
        {"model",
         {{"layers",
           {{{"type", "Dense"}, {"units", 64}, {"activation", "ReLU"}}, {{"type", "Dense"}, {"units", 10}}}},
          {"loss", "SparseCategoricalCrossentropy"},
          {"metrics", {"Accuracy"}}}},
        {"optimizer", {{"type", "Adam"}, {"learningRate", 0.001}}},
        {"batchSize", 256},
        {"epochs", digits.epochs},
        {"seed", digits.seed}}}};
  if (!digits.checkpoints.empty()) {
    spec["trainer"]["checkpoint"] = {{"directory", digits.checkpoints}, {"every", digits.every}, {"keep", 2}};
  }
  return spec;
}

// The checkpoint of the highest step in a folder; empty when there is none that is whole.
inline std::optional<trainer::checkpoint::Snapshot> NewestSnapshot(const std::string& folder) {
  std::optional<trainer::checkpoint::Snapshot> newest;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const UniqueFd file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    auto read = trainer::checkpoint::ReadSnapshot(file.get());
    if (read.ok() && (!newest || read->step > newest->step)) newest = std::move(*read);
  }
  return newest;
}

// Mean loss over the steps of the epoch that a checkpoint of `step` has seen.
inline double LossUpTo(const std::string& folder, const std::string& step) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find(step) == std::string::npos) continue;
    const UniqueFd file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    const auto snapshot = trainer::checkpoint::ReadSnapshot(file.get());
    if (!snapshot.ok()) continue;
    const auto sums = nlohmann::json::parse(snapshot->metadata, nullptr, false);
    return sums.value("epochLoss", NAN) / sums.value("epochSamples", 1.0);
  }
  return NAN;
}

// "test: loss 0.1, accuracy 0.95" in a rank's log; -1 when it isn't there.
inline double TestAccuracy(const std::string& log) {
  std::smatch match;
  return std::regex_search(log, match, std::regex("test: .*accuracy ([0-9.]+)")) ? std::stod(match[1]) : -1;
}

}  // namespace lockstep::testing
