#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/device_backend.h"
#include "trainer/collectives/device_link.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::collectives::cuda {

// What one end of a link has, whatever carries the messages: the places of what it receives, in its device's
// memory, and for each place of what it sends an event on the compute stream behind what it sent there last.
class LinkPlaces {
 public:
  LinkPlaces(const DeviceLinkOptions& options, DeviceBackend& backend)
      : device_(backend.identity().ordinal),
        compute_(static_cast<cudaStream_t>(backend.compute_stream())),
        in_bytes_(Padded(options.asks ? options.answer_bytes : options.question_bytes)),
        out_bytes_(Padded(options.asks ? options.question_bytes : options.answer_bytes)),
        in_(backend.shareable(), options.places * in_bytes_) {
    trainer::cuda::UseDevice(device_);
    for (size_t i = 0; i < options.places; ++i) made_.push_back(trainer::cuda::MakeEvent());
  }

  int device() const { return device_; }
  cudaStream_t compute() const { return compute_; }
  size_t count() const { return made_.size(); }
  size_t of(uint64_t message) const { return static_cast<size_t>(message % made_.size()); }
  // Of a place.
  size_t in_bytes() const { return in_bytes_; }
  size_t out_bytes() const { return out_bytes_; }
  std::byte* in() const { return in_.as<std::byte>(); }
  std::byte* in(uint64_t message) const { return in() + of(message) * in_bytes_; }

  // `stream` comes past it when what is on the compute stream by now is done.
  void Made(uint64_t message, cudaStream_t stream) const {
    LOCKSTEP_CUDA(cudaEventRecord(made_[of(message)].get(), compute_));
    AwaitMade(message, stream);
  }
  // When what was sent last from the place of this message had been made; at once, where nothing was.
  void AwaitMade(uint64_t message, cudaStream_t stream) const {
    LOCKSTEP_CUDA(cudaStreamWaitEvent(stream, made_[of(message)].get(), 0));
  }

 private:
  static size_t Padded(size_t bytes) { return RoundUp(bytes, kBufferAlignment); }

  int device_;
  cudaStream_t compute_;
  size_t in_bytes_, out_bytes_;
  Buffer in_;
  std::vector<trainer::cuda::CudaEvent> made_;
};

}  // namespace lockstep::trainer::collectives::cuda
