#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/support/cuda_on_host/shared_file.h"
#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

constexpr size_t kPage = 4096;

// Whether `counter` has reached `count`; both wrap around.
bool Reached(const EventCounters& counters, uint32_t count) {
  return static_cast<int32_t>(counters.completed.load() - count) >= 0;
}

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void WaitFor(EventCounters& counters, uint32_t count) {
  while (!Reached(counters, count)) {
    const uint32_t seen = counters.completed.load();
    if (static_cast<int32_t>(seen - count) >= 0) break;
    const timespec timeout{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::syscall(SYS_futex, &counters.completed, FUTEX_WAIT, seen, &timeout, nullptr, 0);
    // A failed device waits for nobody; whoever is waited for may be gone too.
    if (Usable() != cudaSuccess) return;
  }
}

void Complete(EventCounters& counters, uint32_t count) {
  uint32_t seen = counters.completed.load();
  while (static_cast<int32_t>(count - seen) > 0 && !counters.completed.compare_exchange_weak(seen, count)) {
  }
  ::syscall(SYS_futex, &counters.completed, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

namespace {

// Counts a record now, and gives the work that completes it.
Work RecordNow(CUevent_st* event) {
  const uint32_t count = event->counters->recorded.fetch_add(1) + 1;
  return {.what = "event",
          .run =
              [counters = event->counters, at = event->nanoseconds, count] {
                at->store(Now());
                Complete(*counters, count);
              },
          .kind = WorkKind::kRunAlways};
}

// Each time the graph comes past it.
Work RecordThen(CUevent_st* event) {
  return {.what = "event",
          .run =
              [counters = event->counters, at = event->nanoseconds] {
                at->store(Now());
                Complete(*counters, counters->recorded.fetch_add(1) + 1);
              },
          .kind = WorkKind::kRunAlways};
}

bool InLiveCapture(const CUevent_st* event) { return event->capture != nullptr && !event->capture->ended; }

std::shared_ptr<EventCounters> MapCounters(int fd) {
  void* memory = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {static_cast<EventCounters*>(memory), [](EventCounters* counters) { ::munmap(counters, kPage); }};
}

}  // namespace
}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = Usable()) return Return(error);
  const bool interprocess = (flags & cudaEventInterprocess) != 0;
  if (interprocess && (flags & cudaEventDisableTiming) == 0) return Return(cudaErrorInvalidValue);
  auto made = std::make_unique<CUevent_st>();
  made->device = CurrentDevice();
  made->timing = (flags & cudaEventDisableTiming) == 0;
  made->interprocess = interprocess;
  made->nanoseconds = std::make_shared<std::atomic<int64_t>>(0);
  if (interprocess) {
    made->shared_fd = MakeSharedFile(kPage);
    made->counters = made->shared_fd < 0 ? nullptr : MapCounters(made->shared_fd);
    if (made->counters == nullptr) return Return(cudaErrorMemoryAllocation);
    new (made->counters.get()) EventCounters;
  } else {
    made->counters = std::make_shared<EventCounters>();
  }
  *event = made.release();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return Return(cudaErrorInvalidResourceHandle);
  if (event->shared_fd >= 0) ::close(event->shared_fd);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  if (const cudaError_t error = Usable()) return Return(error);
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr || stream->device != event->device) return Return(cudaErrorInvalidResourceHandle);
  {
    const std::scoped_lock lock(CaptureMutex());
    if (Capturing(stream)) {
      if (stream->capture->invalidated) return Return(cudaErrorStreamCaptureInvalidated);
      if (flags == cudaEventRecordExternal) {
        stream->capture->nodes.push_back({.work = RecordThen(event), .after = stream->last});
        stream->last = {stream->capture->nodes.size() - 1};
        return cudaSuccess;
      }
      event->capture = stream->capture;
      event->captured_after = stream->last;
      return cudaSuccess;
    }
    event->capture = nullptr;
  }
  return Return(EnqueueWork(handle, RecordNow(event)));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  if (const cudaError_t error = Usable()) return Return(error);
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  {
    const std::scoped_lock lock(CaptureMutex());
    const bool external = flags == cudaEventWaitExternal;
    if (InLiveCapture(event) && !external) {
      if (event->capture->invalidated) return Return(cudaErrorStreamCaptureInvalidated);
      if (!Capturing(stream)) {
        stream->capture = event->capture;
        stream->capture->streams.push_back(stream);
        stream->last.clear();
      } else if (stream->capture != event->capture) {
        stream->capture->invalidated = event->capture->invalidated = true;
        return Return(cudaErrorStreamCaptureMerge);
      }
      for (const size_t node : event->captured_after) {
        if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end()) {
          stream->last.push_back(node);
        }
      }
      return cudaSuccess;
    }
    if (Capturing(stream) && !external) {
      stream->capture->invalidated = true;
      return Return(cudaErrorStreamCaptureIsolation);
    }
  }
  const uint32_t count = event->counters->recorded.load();
  return Return(
      EnqueueWork(handle, {.what = "wait for an event",
                           .run = [counters = event->counters, count] { WaitFor(*counters, count); },
                           .kind = WorkKind::kRunAlways}));
}

namespace {

cudaError_t Readable(cudaEvent_t event) {
  if (const cudaError_t error = Usable()) return error;
  {
    const std::scoped_lock lock(CaptureMutex());
    if (InLiveCapture(event)) {
      event->capture->invalidated = true;
      return cudaErrorCapturedEvent;
    }
  }
  return RefuseInCapture();
}

}  // namespace

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t error = Readable(event)) return Return(error);
  return Return(Reached(*event->counters, event->counters->recorded.load()) ? cudaSuccess
                                                                            : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = Readable(event)) return Return(error);
  WaitFor(*event->counters, event->counters->recorded.load());
  TrimPools();
  return Return(Usable());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (!start->timing || !end->timing || start->nanoseconds->load() == 0 || end->nanoseconds->load() == 0) {
    return Return(cudaErrorInvalidResourceHandle);
  }
  for (const cudaEvent_t event : {start, end}) {
    if (!Reached(*event->counters, event->counters->recorded.load())) return Return(cudaErrorNotReady);
  }
  *milliseconds = static_cast<float>(end->nanoseconds->load() - start->nanoseconds->load()) / 1e6F;
  return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (!event->interprocess) return Return(cudaErrorInvalidResourceHandle);
  *handle = {};
  const SharedFileName name = NameOf(event->shared_fd, kPage, 0);
  static_assert(sizeof name <= sizeof handle->reserved);
  std::memcpy(handle->reserved, &name, sizeof name);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  if (const cudaError_t error = Usable()) return Return(error);
  SharedFileName name;
  std::memcpy(&name, handle.reserved, sizeof name);
  const int fd = OpenSharedFile(name);
  if (fd < 0) return Return(cudaErrorMapBufferObjectFailed);
  auto counters = MapCounters(fd);
  if (counters == nullptr) {
    ::close(fd);
    return Return(cudaErrorMapBufferObjectFailed);
  }
  *event = new CUevent_st{.device = CurrentDevice(),
                          .counters = std::move(counters),
                          .shared_fd = fd,
                          .interprocess = true,
                          .nanoseconds = std::make_shared<std::atomic<int64_t>>(0)};
  return cudaSuccess;
}
