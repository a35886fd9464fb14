#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/status.h"
#include "launcher/placement/nvml_library.h"

namespace lockstep::health {

struct GpuReading {
  int index = 0;  // as NVML counts
  placement::NvmlLibrary::Health health = {};
  std::optional<placement::NvmlLibrary::Computing> computing = {};
};

// Watches the GPUs of a job from a thread of its own, and tells of them on the loop's. A call to the driver
// that does not return holds up this thread only: what was read last stands, and the launcher's work goes on.
class GpuMonitor {
 public:
  struct Options {
    std::string nvml_library;
    std::vector<int> gpus = {};  // by index
    std::chrono::milliseconds interval = std::chrono::seconds(2);
    // On the loop's thread. At most the newest readings are kept for a loop that is busy, and 256 errors.
    std::function<void(const std::vector<GpuReading>&)> on_readings;
    std::function<void(int gpu, int xid)> on_xid;
  };

  // The thread opens the library itself, so that the caller does not wait for it; where it can't be opened,
  // nothing is ever told. After the process's signals were blocked: the thread inherits that.
  static Result<std::unique_ptr<GpuMonitor>> Create(EventLoop& loop, Options options);
  // Waits for the thread, up to two seconds; one that the driver holds longer is left behind.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

 private:
  struct Shared;
  GpuMonitor(EventLoop& loop, Options options, std::shared_ptr<Shared> shared);
  void Deliver();

  EventLoop& loop_;
  const Options options_;
  std::shared_ptr<Shared> shared_;  // with the thread
};

}  // namespace lockstep::health
