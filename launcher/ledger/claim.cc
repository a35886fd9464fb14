#include "launcher/ledger/claim.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "common/wall_time.h"
#include "launcher/placement/memory_share.h"
#include "launcher/spec/enums.h"

namespace lockstep::ledger {
namespace {

using placement::FormatBytes;

// Sums of shares such as 0.3 + 0.7 are not exact.
constexpr double kShareSlack = 1e-9;

std::map<std::string, int64_t> MemoryByDevice(const placement::Inventory& inventory) {
  std::map<std::string, int64_t> memory;
  for (const placement::Gpu& gpu : inventory.gpus) {
    memory[gpu.uuid.empty() ? "GPU:" + std::to_string(gpu.index) : gpu.uuid] = gpu.memory_bytes;
    for (const placement::MigSlice& slice : gpu.slices) memory[slice.uuid] = slice.memory_bytes;
  }
  return memory;
}

void Add(const placement::MemoryShare& share, Use& use) {
  ++use.processes;
  if (share.limit) {
    use.bytes += *share.limit;
  } else if (share.policy == spec::MemoryPolicy::kPreallocate) {
    use.total_bytes > 0 ? use.bytes = use.total_bytes : use.share = 1;
  } else if (share.fraction && use.total_bytes == 0) {
    use.share += *share.fraction;
  }
}

std::string Printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  return text;
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %%", share * 100);
  return text;
}

std::string Amount(int64_t bytes, double share) {
  return share > 0 ? Percent(share) : bytes > 0 ? FormatBytes(bytes) : "nothing";
}

}  // namespace

std::vector<Use> UsesOf(const placement::DeviceAssignment& assignment,
                        const placement::Inventory& inventory) {
  const auto memory = MemoryByDevice(inventory);
  std::map<std::string, Use> uses;
  for (const placement::ProcessDevices& process : assignment.processes) {
    if (process.type != spec::DeviceType::kGpu) continue;
    for (const std::string& device : process.devices) {
      Use& use = uses[device];
      use.device = device;
      const auto found = memory.find(device);
      use.total_bytes = found == memory.end() ? 0 : found->second;
      use.policy = std::string(spec::Name(process.memory.policy));
      Add(process.memory, use);
    }
  }
  std::vector<Use> result;
  for (auto& [device, use] : uses) result.push_back(std::move(use));
  return result;
}

std::string Describe(const Claim& claim) {
  std::string text = "job " + claim.namespace_name + "/" + claim.job + " of " + claim.user + " (pid " +
                     std::to_string(claim.pid) + ", since " + FormatTime(claim.since) + ") holds " +
                     Amount(claim.use.bytes, claim.use.share) + " (" + claim.use.policy + ")";
  return Printable(std::move(text));
}

Status CheckFits(const Use& use, const std::vector<Claim>& held) {
  if (use.bytes <= 0 && use.share <= 0) return {};
  // A claim in bytes and one in shares cannot be compared without the device's size.
  double held_share = 0;
  double held_bytes = 0;
  std::string holders;
  for (const Claim& claim : held) {
    if (claim.use.device != use.device || (claim.use.bytes <= 0 && claim.use.share <= 0)) continue;
    held_share += claim.use.share;
    held_bytes += static_cast<double>(claim.use.bytes);
    if (use.total_bytes > 0) held_bytes += claim.use.share * static_cast<double>(use.total_bytes);
    holders += (holders.empty() ? "" : ", ") + Describe(claim);
  }
  if (holders.empty()) return {};  // what the device has was compared when it was assigned
  const auto total = static_cast<double>(use.total_bytes);
  const bool fits = use.total_bytes > 0 ? held_bytes + static_cast<double>(use.bytes) <= total
                                        : held_share + use.share <= 1 + kShareSlack;
  if (fits) return {};
  const std::string free = use.total_bytes > 0
                               ? FormatBytes(static_cast<int64_t>(std::max(0.0, total - held_bytes)))
                               : Percent(std::max(0.0, 1 - held_share));
  return FailedPrecondition("device " + use.device + " is promised to others: " + holders +
                            "; this job takes " + Amount(use.bytes, use.share) + " (" + use.policy +
                            "), and " + free + " of " +
                            (use.total_bytes > 0 ? FormatBytes(use.total_bytes) : "it") + " is free");
}

}  // namespace lockstep::ledger
