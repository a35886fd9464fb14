#include "trainer/process_environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string_view>

#include "common/contract/environment.h"
#include "common/contract/store_client.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

[[noreturn]] void Fail(const char* name, const std::string& what) {
  throw Error(contract::kExitUsage, "BadEnvironment",
              std::string(name) + " " + what + "; lockstep-trainer is started by \"lockstep run\"");
}

std::string Text(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

int64_t Number(const Variables& variables, const char* name, int64_t least) {
  const std::string text = Text(variables, name);
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
std::string OwnGpu(const Variables& variables) {
  std::string own = Text(variables, contract::kDeviceUuid);
  if (own.starts_with("GPU:")) own = own.substr(4);
  const std::string visible = Text(variables, contract::kCudaVisibleDevices);
  int index = 0;
  for (size_t begin = 0; begin < visible.size(); ++index) {
    const size_t end = std::min(visible.find(',', begin), visible.size());
    if (visible.substr(begin, end - begin) == own) return "GPU:" + std::to_string(index);
    begin = end + 1;
  }
  return "GPU:0";
}

// "worker=4,ps=2".
std::map<std::string, int> ReadRoles(const Variables& variables) {
  std::map<std::string, int> roles;
  const std::string text = Text(variables, contract::kRoles);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string role = text.substr(begin, end - begin);
    const size_t equals = role.find('=');
    int count = 0;
    if (equals == std::string::npos || equals == 0 ||
        std::from_chars(role.data() + equals + 1, role.data() + role.size(), count).ptr !=
            role.data() + role.size() ||
        count < 1) {
      Fail(contract::kRoles, "is \"" + text + "\", not the processes of each role: worker=4,ps=2");
    }
    roles[role.substr(0, equals)] = count;
    begin = end + 1;
  }
  return roles;
}

DeviceOptions ReadMemory(const Variables& variables) {
  static const std::map<std::string, MemoryPolicy> kPolicies = {{"", MemoryPolicy::kGrowth},
                                                                {"Growth", MemoryPolicy::kGrowth},
                                                                {"Preallocate", MemoryPolicy::kPreallocate},
                                                                {"Limit", MemoryPolicy::kLimit},
                                                                {"Fraction", MemoryPolicy::kFraction}};
  DeviceOptions memory;
  const std::string policy = Text(variables, contract::kMemoryPolicy);
  const auto known = kPolicies.find(policy);
  if (known == kPolicies.end()) {
    Fail(contract::kMemoryPolicy,
         "is \"" + policy + "\", not one of Growth, Preallocate, Limit and Fraction");
  }
  memory.policy = known->second;
  if (!Text(variables, contract::kMemoryLimit).empty())
    memory.limit = Number(variables, contract::kMemoryLimit, 1);
  const std::string fraction = Text(variables, contract::kMemoryFraction);
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

ProcessEnvironment ReadProcessEnvironment(const Variables& variables) {
  ProcessEnvironment environment;
  environment.config_file = Text(variables, contract::kTrainerConfig);
  environment.world = {
      .rank = static_cast<int>(Number(variables, contract::kRank, 0)),
      .size = static_cast<int>(Number(variables, contract::kWorldSize, 1)),
      .local_rank = static_cast<int>(Number(variables, contract::kLocalRank, 0)),
      .local_size = static_cast<int>(Number(variables, contract::kLocalWorldSize, 1)),
      .group_rank = static_cast<int>(Number(variables, contract::kGroupRank, 0)),
      .group_size = static_cast<int>(Number(variables, contract::kGroupWorldSize, 1)),
  };
  environment.generation = Number(variables, contract::kGeneration, 0);
  environment.threads = static_cast<int>(Number(variables, contract::kOmpThreads, 1));
  const std::string device = Text(variables, contract::kDevice);
  if (device != "" && device != "CPU" && device != "GPU")
    Fail(contract::kDevice, "is \"" + device + "\", not CPU or GPU");
  if (device == "GPU") environment.device = OwnGpu(variables);
  environment.memory = ReadMemory(variables);
  environment.shares_device = Text(variables, contract::kSharedDevice) == "1";
  environment.roles = ReadRoles(variables);
  if (!Text(variables, contract::kRole).empty()) environment.role = Text(variables, contract::kRole);
  if (!Text(variables, contract::kRoleRank).empty()) {
    environment.role_rank = static_cast<int>(Number(variables, contract::kRoleRank, 0));
  }
  environment.job = Text(variables, contract::kJob);
  environment.token_file = Text(variables, contract::kTokenFile);
  environment.run = Text(variables, contract::kRun);
  environment.store_address = Text(variables, contract::kStoreAddress);
  environment.checkpoint_directory = Text(variables, contract::kCheckpointDirectory);
  environment.interface = Text(variables, contract::kInterface);
  environment.trace_file = Text(variables, contract::kTraceFile);
  if (!environment.trace_file.empty()) environment.trace_steps = Number(variables, contract::kTraceSteps, 1);
  environment.ledger_file = Text(variables, "TRAINING_LEDGER");
  if (environment.world.size > 1 && environment.store_address.empty())
    Fail(contract::kStoreAddress, "is not set");
  return environment;
}

ProcessEnvironment ReadProcessEnvironment() { return ReadProcessEnvironment(InheritedVariables()); }

Variables InheritedVariables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Variables RenewedVariables(const Variables& before, const Variables& given) {
  Variables variables = given;
  for (const auto& [name, value] : before) {
    if (!contract::IsReserved(name)) variables.emplace(name, value);
  }
  return variables;
}

std::unique_ptr<contract::Store> ConnectStore(const ProcessEnvironment& environment) {
  if (environment.world.size == 1) return nullptr;
  const Result<contract::Token> token = contract::Token::Read(environment.token_file);
  if (!token.ok()) throw RendezvousFailed(token.status().message());
  auto store =
      contract::StoreClient::Connect({.address = environment.store_address,
                                      .token = *token,
                                      .job = environment.job,
                                      .generation = environment.generation,
                                      .rank = environment.world.rank,
                                      .store_id = environment.run,
                                      .deadline = std::chrono::steady_clock::now() + kMeetingTimeout});
  if (!store.ok()) throw RendezvousFailed(store.status().message());
  return std::move(*store);
}

}  // namespace lockstep::trainer
