#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::telemetry {

// Why a GPU runs slower than it could: the values of the label `reason`, a closed set.
inline constexpr std::array<std::string_view, 5> kThrottleReasons = {
    "PowerCap", "ThermalSoftware", "ThermalHardware", "PowerBrake", "HardwareSlowdown"};

// A GPU of this machine that the job uses, as its driver last told. What it would not tell is empty.
struct DeviceSnapshot {
  int index = 0;  // as nvidia-smi counts; the label `device`
  std::string uuid = {};
  std::string name = {};
  int64_t memory_bytes = 0;                       // of the device
  std::map<std::string, double> peak_flops = {};  // a second, by precision; those that are known
  std::optional<int64_t> memory_used;             // by all programs on it
  std::optional<double> utilization;              // 0 … 1
  std::optional<double> power_watts;
  std::optional<double> temperature;        // Celsius
  std::optional<int64_t> ecc_errors;        // uncorrected, since the driver was loaded
  std::vector<std::string_view> throttled;  // of kThrottleReasons
  int64_t xid_errors = 0;                   // since this launcher started
  int last_xid = 0;                         // 0: none
  std::string trouble = {};                 // "Xid 79 (GPU has fallen off the bus)"; the newest; empty: none
  bool left_out = false;                    // the job goes on without it
};

}  // namespace lockstep::telemetry
