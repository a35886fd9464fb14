#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "launcher/health/gpu_monitor.h"
#include "launcher/placement/assign.h"
#include "launcher/telemetry/job_state.h"

namespace lockstep::job {

// What the driver says of the job's GPUs while it runs: into JobState, and into the reasons of failures. On
// the loop's thread.
class GpuHealth {
 public:
  struct Options {
    std::string nvml_library;
    placement::Inventory inventory;    // of this machine
    std::vector<std::string> devices;  // the job's, as in ProcessDevices::devices
    std::function<void(const std::string&)> say;
  };

  // All outlive this.
  static Result<std::unique_ptr<GpuHealth>> Start(EventLoop& loop, telemetry::JobState& state,
                                                  Options options);

  // Forgets the troubles of the generation before, but for GPUs that failed.
  void GenerationStarted();

  // What the driver said in this generation of the GPUs of a process, "GPU 0 (GPU-…): Xid 31 (GPU memory page
  // fault)"; empty: nothing.
  std::string TroubleOf(const std::vector<std::string>& devices) const;
  // Whether one of them can no longer be used.
  bool Failed(const std::vector<std::string>& devices) const;

  // GPUs that failed and were not asked for before, and why; by index. They count as left out from now on.
  std::map<int, std::string> TakeFailed();

 private:
  struct Gpu {
    telemetry::DeviceSnapshot snapshot;
    std::string label;    // "GPU 0 (GPU-…)"
    std::string trouble;  // of this generation
    bool failed = false;
    bool taken = false;
  };

  GpuHealth(telemetry::JobState& state, Options options);
  std::vector<int> IndicesOf(const std::vector<std::string>& devices) const;
  void OnReadings(const std::vector<health::GpuReading>& readings);
  void OnXid(int index, int xid);
  void Trouble(Gpu& gpu, const std::string& what, bool fails);

  telemetry::JobState& state_;
  const Options options_;
  std::map<int, Gpu> gpus_;
  std::unique_ptr<health::GpuMonitor> monitor_;
};

}  // namespace lockstep::job
