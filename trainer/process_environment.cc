#include "trainer/process_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
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

// The place of this process's GPU among those it sees. Both lists have UUIDs, or indices where there are
// none.
std::string OwnGpu() {
  std::string own = Text(contract::kDeviceUuid);
  if (own.starts_with("GPU:")) own = own.substr(4);
  const std::string visible = Text(contract::kCudaVisibleDevices);
  int index = 0;
  for (size_t begin = 0; begin < visible.size(); ++index) {
    const size_t end = std::min(visible.find(',', begin), visible.size());
    if (visible.substr(begin, end - begin) == own) return "GPU:" + std::to_string(index);
    begin = end + 1;
  }
  return "GPU:0";
}

DeviceOptions ReadMemory() {
  static const std::map<std::string, MemoryPolicy> kPolicies = {{"", MemoryPolicy::kGrowth},
                                                                {"Growth", MemoryPolicy::kGrowth},
                                                                {"Preallocate", MemoryPolicy::kPreallocate},
                                                                {"Limit", MemoryPolicy::kLimit},
                                                                {"Fraction", MemoryPolicy::kFraction}};
  DeviceOptions memory;
  const std::string policy = Text(contract::kMemoryPolicy);
  const auto known = kPolicies.find(policy);
  if (known == kPolicies.end()) {
    Fail(contract::kMemoryPolicy,
         "is \"" + policy + "\", not one of Growth, Preallocate, Limit and Fraction");
  }
  memory.policy = known->second;
  if (!Text(contract::kMemoryLimit).empty()) memory.limit = Number(contract::kMemoryLimit, 1);
  const std::string fraction = Text(contract::kMemoryFraction);
  if (memory.policy == MemoryPolicy::kFraction) {
    char* end = nullptr;
    memory.fraction = std::strtod(fraction.c_str(), &end);
    if (fraction.empty() || *end != '\0' || !(memory.fraction > 0 && memory.fraction <= 1)) {
      Fail(contract::kMemoryFraction, "is \"" + fraction + "\", not a number above 0 and at most 1");
    }
  }
  if (memory.policy == MemoryPolicy::kLimit && memory.limit == 0) Fail(contract::kMemoryLimit, "is not set");
  return memory;
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
  const std::string device = Text(contract::kDevice);
  if (device != "" && device != "CPU" && device != "GPU")
    Fail(contract::kDevice, "is \"" + device + "\", not CPU or GPU");
  if (device == "GPU") environment.device = OwnGpu();
  environment.memory = ReadMemory();
  environment.shares_device = Text(contract::kSharedDevice) == "1";
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
