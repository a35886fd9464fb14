#pragma once

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>

#include "launcher/telemetry/device_snapshot.h"

namespace lockstep::telemetry {

// The series of GPUs, with the label `device`. Part of JobMetrics, whose registry and memory family it uses;
// its rules on threads are those of JobMetrics.
class DeviceMetrics {
 public:
  // Both outlive this.
  DeviceMetrics(prometheus::Registry& registry, prometheus::Family<prometheus::Gauge>& memory);
  ~DeviceMetrics();

  void Update(const DeviceSnapshot& device);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  prometheus::Family<prometheus::Gauge>& memory_;
  std::map<int, DeviceSnapshot> last_;  // what the counters stand at
};

}  // namespace lockstep::telemetry
