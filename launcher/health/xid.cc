#include "launcher/health/xid.h"

#include <algorithm>
#include <array>

namespace lockstep::health {
namespace {

struct Xid {
  int number;
  XidEffect effect;
  std::string_view meaning;
};

// Those that jobs meet. 63 and 94 leave the GPU usable: the driver has put the memory row aside, and only the
// process that touched it ends (NVIDIA, "GPU Memory Error Management": contained errors). 48, 64 and 95 do
// not: the memory may be wrong for others too. 74: the links that collectives go over.
constexpr std::array<Xid, 22> kXids = {{
    {13, XidEffect::kProcess, "graphics engine exception"},
    {31, XidEffect::kProcess, "GPU memory page fault"},
    {32, XidEffect::kProcess, "corrupted push buffer"},
    {43, XidEffect::kProcess, "GPU stopped processing"},
    {45, XidEffect::kProcess, "work removed after another error"},
    {46, XidEffect::kGpu, "GPU timed out"},
    {48, XidEffect::kGpu, "double bit ECC error"},
    {61, XidEffect::kGpu, "internal microcontroller breakpoint"},
    {62, XidEffect::kGpu, "internal microcontroller halt"},
    {63, XidEffect::kProcess, "memory row remapped"},
    {64, XidEffect::kGpu, "memory row could not be remapped"},
    {68, XidEffect::kProcess, "video processor exception"},
    {69, XidEffect::kProcess, "graphics engine class error"},
    {74, XidEffect::kGpu, "NVLink error"},
    {79, XidEffect::kGpu, "GPU has fallen off the bus"},
    {92, XidEffect::kProcess, "high rate of single bit ECC errors"},
    {94, XidEffect::kProcess, "contained ECC error"},
    {95, XidEffect::kGpu, "uncontained ECC error"},
    {119, XidEffect::kGpu, "GSP does not answer"},
    {120, XidEffect::kGpu, "GSP error"},
    {140, XidEffect::kGpu, "unrecovered ECC error"},
    {143, XidEffect::kGpu, "GPU initialization failed"},
}};

const Xid* Find(int number) {
  const auto found =
      std::find_if(kXids.begin(), kXids.end(), [number](const Xid& xid) { return xid.number == number; });
  return found == kXids.end() ? nullptr : &*found;
}

// nvml.h, nvmlClocksEventReasons.
struct Reason {
  uint64_t bit;
  std::string_view name;
};
constexpr std::array<Reason, 5> kReasons = {{{0x04, "PowerCap"},
                                             {0x20, "ThermalSoftware"},
                                             {0x40, "ThermalHardware"},
                                             {0x80, "PowerBrake"},
                                             {0x08, "HardwareSlowdown"}}};

}  // namespace

XidEffect EffectOf(int xid) {
  const Xid* found = Find(xid);
  return found == nullptr ? XidEffect::kProcess : found->effect;
}

std::string DescribeXid(int xid) {
  const Xid* found = Find(xid);
  return "Xid " + std::to_string(xid) + (found == nullptr ? "" : " (" + std::string(found->meaning) + ")");
}

std::vector<std::string_view> ThrottleReasons(uint64_t bits) {
  std::vector<std::string_view> names;
  for (const Reason& reason : kReasons) {
    if ((bits & reason.bit) != 0) names.push_back(reason.name);
  }
  return names;
}

}  // namespace lockstep::health
