#include "launcher/job/gpu_health.h"

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/health/peak.h"
#include "launcher/health/xid.h"

namespace lockstep::job {

Result<std::unique_ptr<GpuHealth>> GpuHealth::Start(EventLoop& loop, telemetry::JobState& state,
                                                    Options options) {
  std::unique_ptr<GpuHealth> health(new GpuHealth(state, std::move(options)));
  std::vector<int> indices;
  for (const auto& [index, gpu] : health->gpus_) indices.push_back(index);
  auto monitor = health::GpuMonitor::Create(
      loop, {.nvml_library = health->options_.nvml_library,
             .gpus = indices,
             .on_readings = [self = health.get()](const auto& readings) { self->OnReadings(readings); },
             .on_xid = [self = health.get()](int gpu, int xid) { self->OnXid(gpu, xid); }});
  LOCKSTEP_RETURN_IF_ERROR(monitor.status());
  health->monitor_ = std::move(*monitor);
  return health;
}

GpuHealth::GpuHealth(telemetry::JobState& state, Options options)
    : state_(state), options_(std::move(options)) {
  const std::vector<int> indices = IndicesOf(options_.devices);
  for (const placement::Gpu& gpu : options_.inventory.gpus) {
    if (std::find(indices.begin(), indices.end(), gpu.index) == indices.end()) continue;
    Gpu& known = gpus_[gpu.index];
    known.snapshot = {
        .index = gpu.index, .uuid = gpu.uuid, .name = gpu.name, .memory_bytes = gpu.memory_bytes};
    known.label = "GPU " + std::to_string(gpu.index) + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ")");
    state_.DeviceRead(known.snapshot);
  }
}

// A MIG slice has the health of its GPU.
std::vector<int> GpuHealth::IndicesOf(const std::vector<std::string>& devices) const {
  std::set<int> indices;
  for (const placement::Gpu& gpu : options_.inventory.gpus) {
    for (const std::string& device : devices) {
      const bool slice = std::any_of(gpu.slices.begin(), gpu.slices.end(),
                                     [&](const placement::MigSlice& each) { return each.uuid == device; });
      const bool whole = gpu.uuid.empty() ? device == "GPU:" + std::to_string(gpu.index) : device == gpu.uuid;
      if (slice || whole) indices.insert(gpu.index);
    }
  }
  return {indices.begin(), indices.end()};
}

void GpuHealth::GenerationStarted() {
  for (auto& [index, gpu] : gpus_) {
    if (!gpu.failed) gpu.trouble.clear();
  }
}

std::string GpuHealth::TroubleOf(const std::vector<std::string>& devices) const {
  std::string text;
  for (const int index : IndicesOf(devices)) {
    const auto gpu = gpus_.find(index);
    if (gpu == gpus_.end() || gpu->second.trouble.empty()) continue;
    text += (text.empty() ? "" : "; ") + gpu->second.label + ": " + gpu->second.trouble;
  }
  return text;
}

bool GpuHealth::Failed(const std::vector<std::string>& devices) const {
  const std::vector<int> indices = IndicesOf(devices);
  return std::any_of(indices.begin(), indices.end(), [this](int index) {
    const auto gpu = gpus_.find(index);
    return gpu != gpus_.end() && gpu->second.failed;
  });
}

std::map<int, std::string> GpuHealth::TakeFailed() {
  std::map<int, std::string> failed;
  for (auto& [index, gpu] : gpus_) {
    if (!gpu.failed || std::exchange(gpu.taken, true)) continue;
    failed[index] = gpu.trouble;
    gpu.snapshot.left_out = true;
    state_.DeviceRead(gpu.snapshot);
  }
  return failed;
}

void GpuHealth::Trouble(Gpu& gpu, const std::string& what, bool fails) {
  gpu.trouble = what;
  gpu.snapshot.trouble = what;
  gpu.failed = gpu.failed || fails;
  options_.say(gpu.label + ": " + what + (fails ? "; it is left out of the next generation" : ""));
}

void GpuHealth::OnXid(int index, int xid) {
  const auto found = gpus_.find(index);
  if (found == gpus_.end()) return;
  Gpu& gpu = found->second;
  gpu.snapshot.xid_errors += 1;
  gpu.snapshot.last_xid = xid;
  const bool fails = health::EffectOf(xid) == health::XidEffect::kGpu;
  // What follows from the end of a GPU says less than what ended it.
  if (!gpu.failed) Trouble(gpu, health::DescribeXid(xid), fails);
  state_.DeviceRead(gpu.snapshot);
}

void GpuHealth::OnReadings(const std::vector<health::GpuReading>& readings) {
  for (const health::GpuReading& reading : readings) {
    const auto found = gpus_.find(reading.index);
    if (found == gpus_.end()) continue;
    Gpu& gpu = found->second;
    const auto& read = reading.health;
    if (reading.computing && gpu.snapshot.peak_flops.empty()) {
      for (const health::Peak& peak : health::PeaksOf(*reading.computing)) {
        gpu.snapshot.peak_flops.emplace(peak.precision, peak.flops);
      }
    }
    if (!read.lost.empty()) {
      if (!gpu.failed) Trouble(gpu, read.lost, /*fails=*/true);
    } else {
      gpu.snapshot.memory_used = read.memory_used;
      gpu.snapshot.utilization = read.utilization;
      gpu.snapshot.power_watts = read.power_watts;
      gpu.snapshot.temperature = read.temperature;
      gpu.snapshot.ecc_errors = read.ecc_errors;
      gpu.snapshot.throttled = health::ThrottleReasons(read.throttle_reasons.value_or(0));
    }
    state_.DeviceRead(gpu.snapshot);
  }
}

}  // namespace lockstep::job
