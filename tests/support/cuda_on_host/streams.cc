#include <cuda_runtime_api.h>

#include <algorithm>
#include <set>

#include "tests/support/cuda_on_host/devices.h"
#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

// Never destroyed: the threads of streams run until the process ends.
struct Streams {
  std::mutex mutex;
  std::condition_variable released;
  bool held = false;
  std::set<CUstream_st*> alive;
  std::vector<CUstream_st*> of_default;  // by device
  std::vector<CUstream_st*> ended;       // not deleted: another thread may be waiting for one
};
Streams& All() {
  static auto* streams = new Streams;
  return *streams;
}

// The stream's thread. A destroyed stream does what it was given, and ends.
void Serve(CUstream_st* stream) {
  cudaSetDevice(stream->device);
  std::unique_lock lock(stream->mutex);
  for (;;) {
    stream->changed.wait(lock, [&] { return !stream->queue.empty() || stream->destroyed; });
    if (stream->queue.empty()) break;
    Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    lock.unlock();
    {
      std::unique_lock all(All().mutex);
      All().released.wait(all, [] { return !All().held; });
    }
    RunWork(work);
    work = {};
    lock.lock();
    ++stream->done;
    stream->changed.notify_all();
  }
  lock.unlock();
  const std::scoped_lock all(All().mutex);
  All().ended.push_back(stream);
}

CUstream_st* MakeStream(int device, int priority) {
  auto* stream = new CUstream_st;
  stream->device = device;
  stream->priority = priority;
  {
    const std::scoped_lock lock(All().mutex);
    All().alive.insert(stream);
  }
  std::thread(Serve, stream).detach();
  return stream;
}

// Makes every capture of this thread that forbids unsafe calls fail. CaptureMutex() held.
std::vector<std::weak_ptr<Capture>>& CapturesOfThread() {
  static thread_local std::vector<std::weak_ptr<Capture>> captures;
  return captures;
}

}  // namespace

void Hold(bool held) {
  const std::scoped_lock lock(All().mutex);
  All().held = held;
  All().released.notify_all();
}

std::mutex& CaptureMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

void RunWork(const Work& work) {
  if (work.kind == WorkKind::kNormal && Usable() != cudaSuccess) return;
  work.run();
}

CUstream_st* Resolve(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) {
    const auto device = static_cast<size_t>(CurrentDevice());
    std::unique_lock lock(All().mutex);
    if (All().of_default.size() <= device) All().of_default.resize(Devices().size());
    if (All().of_default[device] == nullptr) {
      lock.unlock();
      CUstream_st* made = MakeStream(CurrentDevice(), 0);
      lock.lock();
      All().of_default[device] = made;
    }
    return All().of_default[device];
  }
  const std::scoped_lock lock(All().mutex);
  return All().alive.contains(stream) ? stream : nullptr;
}

bool Capturing(CUstream_st* stream) { return stream->capture != nullptr; }

cudaError_t RefuseInCapture() {
  const std::scoped_lock lock(CaptureMutex());
  bool refused = false;
  for (const auto& weak : CapturesOfThread()) {
    const std::shared_ptr<Capture> capture = weak.lock();
    if (capture == nullptr || capture->ended || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    capture->invalidated = true;
    refused = true;
  }
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t EnqueueWork(cudaStream_t handle, Work work) {
  if (const cudaError_t error = Usable()) return error;
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  {
    const std::scoped_lock lock(CaptureMutex());
    if (Capturing(stream)) {
      Capture& capture = *stream->capture;
      if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
      capture.nodes.push_back({.work = std::move(work), .after = stream->last});
      stream->last = {capture.nodes.size() - 1};
      return cudaSuccess;
    }
  }
  const std::scoped_lock lock(stream->mutex);
  stream->queue.push_back(std::move(work));
  ++stream->enqueued;
  stream->changed.notify_all();
  return cudaSuccess;
}

cudaError_t Enqueue(cudaStream_t stream, const std::string& what, std::function<void()> work) {
  return EnqueueWork(stream, {.what = what, .run = std::move(work)});
}

cudaError_t WaitForStream(CUstream_st* stream) {
  {
    std::unique_lock lock(stream->mutex);
    const uint64_t until = stream->enqueued;
    stream->changed.wait(lock, [&] { return stream->done >= until; });
  }
  TrimPools();
  return Usable();
}

cudaError_t WaitForDevice(int device) {
  std::vector<CUstream_st*> streams;
  {
    const std::scoped_lock lock(All().mutex);
    for (CUstream_st* stream : All().alive) {
      if (stream->device == device) streams.push_back(stream);
    }
  }
  for (CUstream_st* stream : streams) {
    if (const cudaError_t error = WaitForStream(stream)) return error;
  }
  return Usable();
}

namespace {

// Nodes that `from` and all that they come after, by number.
std::vector<bool> Ancestors(const std::vector<Node>& nodes, std::vector<size_t> from) {
  std::vector<bool> seen(nodes.size(), false);
  while (!from.empty()) {
    const size_t node = from.back();
    from.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    from.insert(from.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return seen;
}

// An order that the edges allow, as far from that of recording as they do: an edge that is missing shows.
std::vector<size_t> LeastConvenientOrder(const std::vector<Node>& nodes) {
  std::vector<size_t> missing(nodes.size());
  std::set<size_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    missing[i] = nodes[i].after.size();
    if (missing[i] == 0) ready.insert(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t next = *ready.rbegin();
    ready.erase(next);
    order.push_back(next);
    for (size_t i = next + 1; i < nodes.size(); ++i) {
      for (const size_t before : nodes[i].after) {
        if (before == next && --missing[i] == 0) ready.insert(i);
      }
    }
  }
  return order;
}

}  // namespace
}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (const cudaError_t error = Usable()) return Return(error);
  // One that waits for the default stream would need that stream's rules, which nothing of ours relies on.
  if (flags != cudaStreamNonBlocking) return Return(cudaErrorNotSupported);
  *stream = MakeStream(CurrentDevice(), std::clamp(priority, -5, 0));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::scoped_lock lock(All().mutex);
    if (All().alive.erase(stream) == 0) return Return(cudaErrorInvalidResourceHandle);
  }
  const std::scoped_lock lock(stream->mutex);
  stream->destroyed = true;
  stream->changed.notify_all();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  return Return(WaitForStream(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  const std::scoped_lock lock(stream->mutex);
  return Return(stream->done == stream->enqueued ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return Return(Enqueue(stream, "cudaLaunchHostFunc", [=] { function(data); }));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = Usable()) return Return(error);
  CUstream_st* stream = handle == nullptr ? nullptr : Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorStreamCaptureUnsupported);
  const std::scoped_lock lock(CaptureMutex());
  if (Capturing(stream)) return Return(cudaErrorIllegalState);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->streams = {stream};
  CapturesOfThread().push_back(capture);
  stream->capture = std::move(capture);
  stream->last.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  const std::scoped_lock lock(CaptureMutex());
  if (!Capturing(stream)) return Return(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return Return(cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return Return(cudaErrorStreamCaptureWrongThread);
  }
  const std::vector<bool> joined = Ancestors(capture->nodes, stream->last);
  for (CUstream_st* each : capture->streams) {
    each->capture = nullptr;
    each->last.clear();
  }
  capture->ended = true;
  std::erase_if(CapturesOfThread(), [](const auto& weak) {
    const auto held = weak.lock();
    return held == nullptr || held->ended;
  });
  if (capture->invalidated) return Return(cudaErrorStreamCaptureInvalidated);
  if (std::find(joined.begin(), joined.end(), false) != joined.end()) {
    return Return(cudaErrorStreamCaptureUnjoined);
  }
  *graph = new CUgraph_st{.nodes = std::make_shared<const std::vector<Node>>(std::move(capture->nodes))};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = Usable()) return Return(error);
  CUstream_st* stream = Resolve(handle);
  if (stream == nullptr) return Return(cudaErrorInvalidResourceHandle);
  const std::scoped_lock lock(CaptureMutex());
  *status = !Capturing(stream)             ? cudaStreamCaptureStatusNone
            : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = Usable()) return Return(error);
  *exec = new CUgraphExec_st{.nodes = graph->nodes, .order = LeastConvenientOrder(*graph->nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return Return(Usable()); }

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Return(Enqueue(stream, "graph", [nodes = exec->nodes, order = exec->order] {
    for (const size_t node : order) RunWork((*nodes)[node].work);
  }));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (nodes != nullptr) return Return(cudaErrorNotSupported);
  *count = graph->nodes->size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
