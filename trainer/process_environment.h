#pragma once

#include <cstdint>
#include <string>

#include "trainer/backend/cuda_plugin.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// What the launcher told this process (docs/contract.md).
struct ProcessEnvironment {
  strategy::World world;
  int64_t generation = 0;
  int threads = 1;
  std::string device = "CPU:0";  // this process's own, among those it sees
  DeviceOptions memory;          // what it may take of it, and of each other GPU it sees
  bool shares_device = false;    // other ranks are on the same GPU
  std::string run;               // random; the same in all generations
  std::string config_file;
  std::string store_address;         // empty: none, and then the world has one rank
  std::string checkpoint_directory;  // empty: as the manifest says
  std::string interface;             // empty: the one that reaches the store
  std::string ledger_file;           // empty: no ledger (TRAINING_LEDGER, for tests of recovery)
};

// Throws Error with kExitUsage naming the variable that is missing or wrong.
ProcessEnvironment ReadProcessEnvironment();

}  // namespace lockstep::trainer
