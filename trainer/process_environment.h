#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/contract/store.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// What the launcher told this process (docs/contract.md).
struct ProcessEnvironment {
  strategy::World world;
  int64_t generation = 0;
  int threads = 1;
  std::string device = "CPU:0";      // this process's own, among those it sees
  DeviceOptions memory;              // what it may take of it, and of each other GPU it sees
  bool shares_device = false;        // other ranks are on the same GPU
  std::string role = "worker";       // of a job with parameter servers: what this process is
  int role_rank = 0;                 // this process among those of its role
  std::map<std::string, int> roles;  // processes of each; empty: not told, and then there are workers only
  std::string job;
  std::string token_file;
  std::string run;                   // random; the same in all generations
  std::string config_file;           // the resolved manifest; empty: this is no job of spec.trainer
  std::string store_address;         // empty: none, and then the world has one rank
  std::string checkpoint_directory;  // empty: as the manifest says
  std::string interface;             // empty: the one that reaches the store
  std::string trace_file;            // its part of a trace; empty: none is asked for
  int64_t trace_steps = 0;           // then: of how many steps, at least 1
  std::string ledger_file;           // empty: no ledger (TRAINING_LEDGER, for tests of recovery)
};

// An environment: values by name.
using Variables = std::map<std::string, std::string>;
// What this process was started with.
Variables InheritedVariables();
// What is there in a new generation: of `before` what the contract has nothing to do with, and `given`.
Variables RenewedVariables(const Variables& before, const Variables& given);

// Throws Error with kExitUsage naming the variable that is missing or wrong.
ProcessEnvironment ReadProcessEnvironment(const Variables& variables);
ProcessEnvironment ReadProcessEnvironment();

// How long the ranks may take to come together at the start, and to answer one another later. The launcher
// finds a hung rank sooner (docs/contract.md); this is the net under it.
inline constexpr std::chrono::seconds kMeetingTimeout{120};

// Where the ranks meet; null where there is one. Throws RendezvousFailed.
std::unique_ptr<contract::Store> ConnectStore(const ProcessEnvironment& environment);

}  // namespace lockstep::trainer
