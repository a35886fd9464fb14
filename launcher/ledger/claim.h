#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"

// The device ledger: which jobs of this machine have promised themselves how much of which GPU, so that a
// second job is refused before it starts instead of running out of memory after an hour. It counts promises,
// not what is in use: memory of programs that no launcher started is not in it, and Growth promises nothing.
//
//   claim.h          who fits; pure
//   claim_file.h     a claim as text; bounded, written by strangers
//   device_ledger.h  the folder with the claims, and their locks
namespace lockstep::ledger {

// What one job takes of one device, over all its processes there.
struct Use {
  std::string device = {};  // UUID of the GPU or MIG slice, "GPU:0" where it has none
  int64_t total_bytes = 0;  // of the device; 0: not known
  std::string policy = {};  // "Growth" …
  int64_t bytes = 0;        // promised; 0: none
  double share = 0;         // of the device, where its size is not known; else 0
  int processes = 0;
};

// A use, and whose it is.
struct Claim {
  Use use = {};
  std::string job = {};
  std::string namespace_name = {};
  std::string user = {};
  int pid = 0;  // of the launcher
  std::chrono::system_clock::time_point since = {};
};

// Of an assignment, one a device, by name. Empty for one on the CPU. A device under Limit, Fraction or
// virtual.memoryLimit is promised as much as all its processes' limits together; under Preallocate without a
// limit all of it; under Growth nothing.
std::vector<Use> UsesOf(const placement::DeviceAssignment& assignment, const placement::Inventory& inventory);

// Whether `use` fits beside the claims of others on the same device. kFailedPrecondition names the device,
// who holds how much of it, what is wanted and what is free.
Status CheckFits(const Use& use, const std::vector<Claim>& held);

// "job default/mnist of alice (pid 4711, since 2026-11-21T11:02:03Z) holds 40 GiB (Fraction)". Characters
// that a terminal would take for commands are replaced.
std::string Describe(const Claim& claim);

}  // namespace lockstep::ledger
