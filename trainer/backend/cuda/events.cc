#include "trainer/backend/cuda/events.h"

#include <exception>
#include <utility>

#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/cuda/recording.h"

namespace lockstep::trainer::cuda {
namespace {

class Event final : public DeviceEvent {
 public:
  Event(bool timing, int ordinal)
      : timing_(timing),
        ordinal_(ordinal),
        event_(cuda::MakeEvent(timing ? cudaEventDefault : cudaEventDisableTiming)) {}

  void Record(Stream stream) override {
    UseDevice(ordinal_);
    auto* on = static_cast<cudaStream_t>(stream);
    const bool external = timing_ && IsRecording(on);
    LOCKSTEP_CUDA(cudaEventRecordWithFlags(event_.get(), on,
                                           external ? cudaEventRecordExternal : cudaEventRecordDefault));
  }

  void MakeWait(Stream stream) override {
    UseDevice(ordinal_);
    LOCKSTEP_CUDA(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_.get(), 0));
  }

  bool Done() override {
    UseDevice(ordinal_);
    const cudaError_t state = cudaEventQuery(event_.get());
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // it is no failure of a later call
      return false;
    }
    CheckCuda(state, "cudaEventQuery", __FILE__, __LINE__);
    return true;
  }

  double SecondsSince(const DeviceEvent& start) const override {
    UseDevice(ordinal_);
    float milliseconds = 0;
    LOCKSTEP_CUDA(
        cudaEventElapsedTime(&milliseconds, static_cast<const Event&>(start).event_.get(), event_.get()));
    return static_cast<double>(milliseconds) / 1e3;
  }

 private:
  bool timing_;
  int ordinal_;
  CudaEvent event_;
};

class Graph final : public DeviceGraph {
 public:
  Graph(CudaGraphExec graph, cudaStream_t stream, int ordinal)
      : graph_(std::move(graph)), stream_(stream), ordinal_(ordinal) {}
  void Launch() override {
    UseDevice(ordinal_);
    LOCKSTEP_CUDA(cudaGraphLaunch(graph_.get(), stream_));
  }

 private:
  CudaGraphExec graph_;
  cudaStream_t stream_;
  int ordinal_;
};

// Whether an error says that something cannot be part of a recording, and not that the device is broken.
bool SpoiltRecording(cudaError_t error) {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
}

}  // namespace

std::unique_ptr<DeviceEvent> MakeDeviceEvent(bool timing, int ordinal) {
  UseDevice(ordinal);
  return std::make_unique<Event>(timing, ordinal);
}

std::unique_ptr<DeviceGraph> RecordGraph(cudaStream_t stream, int ordinal,
                                         const std::function<void()>& enqueue) {
  UseDevice(ordinal);
  LOCKSTEP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  std::exception_ptr failure;
  bool not_recordable = false;
  try {
    enqueue();
  } catch (const NotRecordable&) {
    not_recordable = true;
  } catch (...) {
    failure = std::current_exception();
  }
  // A recording that has begun is ended, whatever happened in it.
  UseDevice(ordinal);
  CudaGraph recorded;
  const cudaError_t ended = cudaStreamEndCapture(stream, recorded.Receive());
  if (ended != cudaSuccess) cudaGetLastError();
  if (SpoiltRecording(ended) || not_recordable) return nullptr;
  if (failure) std::rethrow_exception(failure);
  CheckCuda(ended, "cudaStreamEndCapture", __FILE__, __LINE__);
  CudaGraphExec graph;
  LOCKSTEP_CUDA(cudaGraphInstantiate(graph.Receive(), recorded.get(), 0));
  LOCKSTEP_CUDA(cudaGraphUpload(graph.get(), stream));
  return std::make_unique<Graph>(std::move(graph), stream, ordinal);
}

}  // namespace lockstep::trainer::cuda
