#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_host/runtime.h"

// The things behind the runtime's handles. Only for the files that implement it.

namespace lockstep::cuda_on_host {

// Unless it is kRunAlways, work is left out once the device has failed.
enum class WorkKind { kNormal, kRunAlways };
struct Work {
  std::string what;
  std::function<void()> run;
  WorkKind kind = WorkKind::kNormal;
};
void RunWork(const Work& work);

struct Node {
  Work work;
  std::vector<size_t> after;  // nodes, all recorded before this one
};

// A capture that is under way, of one or several streams.
struct Capture {
  std::vector<Node> nodes;
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  cudaStreamCaptureMode mode{};
  bool invalidated = false;
  bool ended = false;
  std::vector<CUstream_st*> streams;
};
// Guards everything about captures.
std::mutex& CaptureMutex();

// Of an event; in memory of several processes where it was made for that. Both count up.
struct EventCounters {
  std::atomic<uint32_t> recorded{0};   // enqueued
  std::atomic<uint32_t> completed{0};  // a futex
};
// Until `count` records of the event are complete.
void WaitFor(EventCounters& counters, uint32_t count);
void Complete(EventCounters& counters, uint32_t count);

// cudaSuccess, or what is wrong with calling the runtime now: no device, a failed one.
cudaError_t Usable();
// For calls that a thread must not make while it captures; invalidates its captures.
cudaError_t RefuseInCapture();
// Whether the stream is being captured, CaptureMutex() held.
bool Capturing(CUstream_st* stream);
// The stream for a handle: the default one of the current device for null. Null for no stream of ours.
CUstream_st* Resolve(cudaStream_t stream);
cudaError_t EnqueueWork(cudaStream_t stream, Work work);
cudaError_t WaitForStream(CUstream_st* stream);
cudaError_t WaitForDevice(int device);
// Pools give back what they hold beyond their thresholds, as they do when the host synchronises.
void TrimPools();

}  // namespace lockstep::cuda_on_host

struct CUstream_st {
  int device = 0;
  int priority = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<lockstep::cuda_on_host::Work> queue;
  uint64_t enqueued = 0;
  uint64_t done = 0;
  bool destroyed = false;

  // Guarded by CaptureMutex().
  std::shared_ptr<lockstep::cuda_on_host::Capture> capture;
  std::vector<size_t> last;  // nodes that the next one comes after
};

struct CUevent_st {
  int device = 0;
  std::shared_ptr<lockstep::cuda_on_host::EventCounters> counters;
  int shared_fd = -1;  // of the counters' memory, for other processes
  bool timing = false;
  bool interprocess = false;
  std::shared_ptr<std::atomic<int64_t>> nanoseconds;  // when it last completed

  // Where it was last recorded in a capture; guarded by CaptureMutex().
  std::shared_ptr<lockstep::cuda_on_host::Capture> capture;
  std::vector<size_t> captured_after;
};

struct CUgraph_st {
  std::shared_ptr<const std::vector<lockstep::cuda_on_host::Node>> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<lockstep::cuda_on_host::Node>> nodes;
  std::vector<size_t> order;
};

struct CUmemPoolHandle_st {
  int device = 0;
  uint64_t threshold = 0;
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t used = 0, used_high = 0;
};
