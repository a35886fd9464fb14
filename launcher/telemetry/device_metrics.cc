#include "launcher/telemetry/device_metrics.h"

#include <prometheus/counter.h>

#include <algorithm>

namespace lockstep::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;

}  // namespace

struct DeviceMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : utilization(prometheus::BuildGauge()
                        .Name("lockstep_device_utilization_ratio")
                        .Help("Share of the time in which a kernel ran on the GPU, of any program.")
                        .Register(registry)),
        peak(prometheus::BuildGauge()
                 .Name("lockstep_device_peak_flops")
                 .Help("Floating-point operations of this precision that the GPU can do in a second at its "
                       "highest clock; only of precisions for which this is known.")
                 .Register(registry)),
        power(prometheus::BuildGauge()
                  .Name("lockstep_device_power_watts")
                  .Help("Power that the GPU draws.")
                  .Register(registry)),
        temperature(prometheus::BuildGauge()
                        .Name("lockstep_device_temperature_celsius")
                        .Help("Temperature of the GPU's die.")
                        .Register(registry)),
        throttled(prometheus::BuildGauge()
                      .Name("lockstep_device_throttled")
                      .Help("1 while the GPU runs slower than it could, for this reason.")
                      .Register(registry)),
        xid_errors(prometheus::BuildCounter()
                       .Name("lockstep_device_xid_errors_total")
                       .Help("Xid errors that the driver reported of the GPU while the job ran.")
                       .Register(registry)),
        ecc_errors(prometheus::BuildGauge()
                       .Name("lockstep_device_ecc_uncorrected_errors")
                       .Help("Uncorrected ECC errors of the GPU since its driver was loaded.")
                       .Register(registry)) {}

  Family<Gauge>& utilization;
  Family<Gauge>& peak;
  Family<Gauge>& power;
  Family<Gauge>& temperature;
  Family<Gauge>& throttled;
  Family<Counter>& xid_errors;
  Family<Gauge>& ecc_errors;
};

DeviceMetrics::DeviceMetrics(prometheus::Registry& registry, Family<Gauge>& memory)
    : families_(std::make_unique<Families>(registry)), memory_(memory) {}

DeviceMetrics::~DeviceMetrics() = default;

void DeviceMetrics::Update(const DeviceSnapshot& device) {
  const std::string index = std::to_string(device.index);
  const prometheus::Labels labels = {{"device", index}};
  if (device.utilization) families_->utilization.Add(labels).Set(*device.utilization);
  for (const auto& [precision, flops] : device.peak_flops) {
    families_->peak.Add({{"device", index}, {"precision", precision}}).Set(flops);
  }
  if (device.power_watts) families_->power.Add(labels).Set(*device.power_watts);
  if (device.temperature) families_->temperature.Add(labels).Set(*device.temperature);
  if (device.ecc_errors) families_->ecc_errors.Add(labels).Set(static_cast<double>(*device.ecc_errors));
  if (device.memory_used) {
    memory_.Add({{"device", index}, {"kind", "device_used"}}).Set(static_cast<double>(*device.memory_used));
  }
  for (const std::string_view reason : kThrottleReasons) {
    const bool holds =
        std::find(device.throttled.begin(), device.throttled.end(), reason) != device.throttled.end();
    families_->throttled.Add({{"device", index}, {"reason", std::string(reason)}}).Set(holds ? 1 : 0);
  }
  // At 0 from the start, so that the first error is seen as a change.
  const int64_t before = last_[device.index].xid_errors;
  families_->xid_errors.Add(labels).Increment(
      static_cast<double>(std::max<int64_t>(0, device.xid_errors - before)));
  last_[device.index] = device;
}

}  // namespace lockstep::telemetry
