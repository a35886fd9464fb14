#include "launcher/health/gpu_monitor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/unique_fd.h"

namespace lockstep::health {

namespace {

using placement::NvmlLibrary;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxXids = 256;
// NVML's wait cannot be woken: this long the launcher waits for it at the end.
constexpr auto kSlice = std::chrono::milliseconds(100);
constexpr auto kEndLimit = std::chrono::seconds(2);

}  // namespace

struct GpuMonitor::Shared {
  UniqueFd wake;  // told the loop of something
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;   // asked of the thread
  bool ended = false;  // said by it
  std::optional<std::vector<GpuReading>> readings;
  std::deque<std::pair<int, int>> xids;  // GPU, number

  bool stopped() {
    const std::lock_guard lock(mutex);
    return stop;
  }
  void Tell(std::vector<GpuReading> read) {
    {
      const std::lock_guard lock(mutex);
      readings = std::move(read);
    }
    Wake();
  }
  void Tell(int gpu, int xid) {
    {
      const std::lock_guard lock(mutex);
      if (xids.size() == kMaxXids) xids.pop_front();
      xids.emplace_back(gpu, xid);
    }
    Wake();
  }
  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
  }
  void End() {
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
};

namespace {

// The thread's work: reads all GPUs at every interval, and listens for errors in between.
template <typename Shared>
void Watch(Shared& shared, const std::string& file, const std::vector<int>& gpus,
           std::chrono::milliseconds interval) {
  auto library = NvmlLibrary::Open(file);
  if (!library.ok()) return;
  std::map<NvmlLibrary::Device, int> devices;
  std::map<int, std::optional<NvmlLibrary::Computing>> computing;
  std::vector<NvmlLibrary::Device> handles;
  for (const int gpu : gpus) {
    const auto device = library->DeviceByIndex(gpu);
    if (!device.ok()) continue;
    devices[*device] = gpu;
    computing[gpu] = library->ReadComputing(*device);
    handles.push_back(*device);
  }
  if (handles.empty()) return;
  const bool tells_xids = library->WatchXids(handles).ok();
  auto next = Clock::now();
  while (!shared.stopped()) {
    if (Clock::now() >= next) {
      std::vector<GpuReading> readings;
      for (const auto& [device, gpu] : devices) {
        readings.push_back(
            {.index = gpu, .health = library->ReadHealth(device), .computing = computing[gpu]});
      }
      shared.Tell(std::move(readings));
      next = Clock::now() + interval;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now());
    const auto slice = std::clamp(left, std::chrono::milliseconds(1), kSlice);
    if (tells_xids) {
      const auto event = library->WaitForXid(slice);
      if (event.ok()) {
        const auto gpu = *event ? devices.find((*event)->device) : devices.end();
        if (gpu != devices.end()) shared.Tell(gpu->second, (*event)->xid);
        continue;
      }
    }
    std::unique_lock lock(shared.mutex);
    shared.changed.wait_for(lock, slice, [&] { return shared.stop; });
  }
}

}  // namespace

Result<std::unique_ptr<GpuMonitor>> GpuMonitor::Create(EventLoop& loop, Options options) {
  auto shared = std::make_shared<Shared>();
  shared->wake = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!shared->wake) return Status::FromErrno(errno, "eventfd");
  std::unique_ptr<GpuMonitor> monitor(new GpuMonitor(loop, std::move(options), shared));
  LOCKSTEP_RETURN_IF_ERROR(
      loop.Watch(shared->wake.get(), EPOLLIN, [self = monitor.get()](uint32_t) { self->Deliver(); }));
  std::thread([shared, file = monitor->options_.nvml_library, gpus = monitor->options_.gpus,
               interval = monitor->options_.interval] {
    Watch(*shared, file, gpus, interval);
    shared->End();
  }).detach();
  return monitor;
}

GpuMonitor::GpuMonitor(EventLoop& loop, Options options, std::shared_ptr<Shared> shared)
    : loop_(loop), options_(std::move(options)), shared_(std::move(shared)) {}

GpuMonitor::~GpuMonitor() {
  loop_.Unwatch(shared_->wake.get());
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kEndLimit, [this] { return shared_->ended; });
}

void GpuMonitor::Deliver() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(shared_->wake.get(), &count, sizeof count);
  std::optional<std::vector<GpuReading>> readings;
  std::deque<std::pair<int, int>> xids;
  {
    const std::lock_guard lock(shared_->mutex);
    readings.swap(shared_->readings);
    xids.swap(shared_->xids);
  }
  // Errors first: who looks at the readings after an error knows of it.
  for (const auto& [gpu, xid] : xids) options_.on_xid(gpu, xid);
  if (readings) options_.on_readings(*readings);
}

}  // namespace lockstep::health
