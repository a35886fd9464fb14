#include "trainer/process_environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "common/contract/environment.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

[[noreturn]] void Fail(const char* name, const std::string& what) {
  throw Error(contract::kExitUsage, "BadEnvironment",
              std::string(name) + " " + what + "; lockstep-trainer is started by \"lockstep run\"");
}

std::string Text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int64_t Number(const char* name, int64_t least) {
  const std::string text = Text(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty()) Fail(name, "is not set");
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    Fail(name, "is \"" + text + "\", not a whole number of at least " + std::to_string(least));
  }
  return value;
}

}  // namespace

ProcessEnvironment ReadProcessEnvironment() {
  ProcessEnvironment environment;
  environment.config_file = Text(contract::kTrainerConfig);
  if (environment.config_file.empty()) Fail(contract::kTrainerConfig, "is not set");
  environment.world = {
      .rank = static_cast<int>(Number(contract::kRank, 0)),
      .size = static_cast<int>(Number(contract::kWorldSize, 1)),
      .local_rank = static_cast<int>(Number(contract::kLocalRank, 0)),
      .local_size = static_cast<int>(Number(contract::kLocalWorldSize, 1)),
      .group_rank = static_cast<int>(Number(contract::kGroupRank, 0)),
      .group_size = static_cast<int>(Number(contract::kGroupWorldSize, 1)),
  };
  environment.generation = Number(contract::kGeneration, 0);
  environment.threads = static_cast<int>(Number(contract::kOmpThreads, 1));
  environment.run = Text(contract::kRun);
  environment.store_address = Text(contract::kStoreAddress);
  environment.checkpoint_directory = Text(contract::kCheckpointDirectory);
  environment.interface = Text(contract::kInterface);
  environment.ledger_file = Text("TRAINING_LEDGER");
  if (environment.world.size > 1 && environment.store_address.empty())
    Fail(contract::kStoreAddress, "is not set");
  return environment;
}

}  // namespace lockstep::trainer
