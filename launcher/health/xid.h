#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Health: how the GPUs are that a job uses, while it runs. xid.h says what a driver's errors mean (pure);
// gpu_monitor.h asks the driver from a thread of its own, since a GPU in trouble can keep a call waiting for
// seconds. Nothing here decides what becomes of the job: job/ does.
namespace lockstep::health {

// What an Xid error means for the GPU that reports it, after NVIDIA's "XID Errors" and its catalog of
// immediate actions (docs.nvidia.com/deploy/xid-errors).
enum class XidEffect {
  kProcess,  // the process that caused it ends; the GPU goes on
  kGpu,      // the GPU needs a reset, a reboot or a technician: no process can use it before
};

XidEffect EffectOf(int xid);

// "Xid 79 (GPU has fallen off the bus)".
std::string DescribeXid(int xid);

// The names (telemetry::kThrottleReasons) of the set bits of NVML's nvmlClocksEventReasons that stand for a
// GPU held back; idling and clocks that somebody set are not among them.
std::vector<std::string_view> ThrottleReasons(uint64_t bits);

}  // namespace lockstep::health
