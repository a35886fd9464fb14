#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "trainer/backend/backend.h"

// A backend whose memory the host cannot read and whose work runs behind the host's back: a GPU. Everything a
// Backend enqueues goes onto one stream of work, its compute stream, in order; pointers handed to it must
// stay valid until that work is done. Upload, Download, SumOfSquares and Synchronize block; nothing else
// does.
//
// Errors of work that has run already are thrown by whichever call comes next: BadData for numbers that an
// Embedding does not have, OutOfMemory, or DeviceLost for whatever leaves the device unusable.
namespace lockstep::trainer {

// A queue of work; a cudaStream_t. Views: the backend owns them.
using Stream = void*;

struct DeviceIdentity {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-…" or "MIG-…", as NVML and CUDA_VISIBLE_DEVICES have it
  int ordinal = 0;           // among the devices this process sees
  int64_t memory_bytes = 0;  // of the device
  int capability = 0;        // 90 for sm_90
};

// In bytes.
struct DeviceMemoryUse {
  int64_t held = 0;     // by the backend's pool
  int64_t used = 0;     // of it, handed out now
  int64_t peak = 0;     // the most that was ever handed out
  int64_t limit = 0;    // that the policy allows; 0: none
  int64_t context = 0;  // taken on the device before the first allocation: libraries and others, too
};

// A point in a stream. Reusable; a wait is for the latest Record before it. One thread at a time.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void Record(Stream stream) = 0;
  // Work enqueued on `stream` from now on runs after this point; the host does not wait.
  virtual void MakeWait(Stream stream) = 0;
  // Whether everything before this point is done; true when never recorded.
  virtual bool Done() = 0;
  // Seconds on the device from `start` to this point; both made with timing, both done.
  virtual double SecondsSince(const DeviceEvent& start) const = 0;
};

// Work that was recorded once and is enqueued again in one call.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void Launch() = 0;  // on the compute stream
};

// Samples that the device gathers batches from.
struct DeviceDatasetOptions {
  // In host memory, `samples` rows each; outlive the dataset. Rows as stored: uint8 or float32 [features].
  const void* rows = nullptr;
  const void* targets = nullptr;  // int32 or float32 [samples]
  int64_t samples = 0;
  int64_t features = 0;  // 0: only the targets are read
  DataType row_type = DataType::kUInt8;
  DataType target_type = DataType::kInt32;
  float scale = 1;                           // a stored value times this is the feature
  DataType input_type = DataType::kFloat32;  // of a batch's inputs: Float32 or BFloat16
  DataType label_type = DataType::kInt32;    // of a batch's labels; Int32 is converted to Float32 where asked
  int64_t max_batch = 0;
};

// All of it lies in the device's memory where that fits beside what is needed otherwise; else the rows of a
// batch are copied through pinned memory while the batch before is computed.
class DeviceDataset {
 public:
  virtual ~DeviceDataset() = default;
  virtual bool resident() const = 0;
  // Enqueues: rows `samples` as inputs [n, features] and labels [n], in the backend's memory, valid from then
  // on for work on the compute stream until the second Load after this one. Bitwise the values that
  // data::DatasetView gathers. `samples` may be changed once this has returned.
  struct Loaded {
    const void* inputs = nullptr;
    const void* labels = nullptr;
  };
  virtual Loaded Load(std::span<const uint32_t> samples) = 0;
};

class DeviceBackend : public Backend {
 public:
  virtual const DeviceIdentity& identity() const = 0;
  virtual DeviceMemoryUse memory_use() = 0;

  // Host memory that the device copies to and from by itself; the kernels read it in place too.
  virtual Allocator& pinned() = 0;
  // Device memory, under the same policy, that other processes can open (CUDA IPC), and NCCL register.
  virtual Allocator& shareable() = 0;

  virtual Stream compute_stream() = 0;
  virtual Stream communication_stream() = 0;  // of high priority; not ordered with the compute stream
  virtual std::unique_ptr<DeviceEvent> MakeEvent(bool timing) = 0;

  // On the compute stream, without blocking. Both lie in the device's memory or in pinned(), in any
  // combination; pinned memory must stay as it is until the work is done.
  virtual void CopyAsync(void* to, const void* from, size_t bytes) = 0;
  // *sum = Σ x² of float32, in double, on the compute stream; `sum` in the device's memory.
  virtual void SumOfSquaresAsync(const float* data, int64_t count, double* sum) = 0;
  // The same onto what *sum is.
  virtual void AddSumOfSquaresAsync(const float* data, int64_t count, double* sum) = 0;
  // *where = value, on the compute stream. The value is taken now.
  virtual void SetFloat(float* where, float value) = 0;

  // Runs `enqueue` once without executing what it enqueues, on the compute stream or streams that join it
  // again (by events), and keeps that as a graph. Null when something in it cannot be recorded (then nothing
  // was enqueued, and the caller enqueues directly). Kernels must have run once before for the same sizes.
  virtual std::unique_ptr<DeviceGraph> Record(const std::function<void()>& enqueue) = 0;

  virtual std::unique_ptr<DeviceDataset> MakeDataset(const DeviceDatasetOptions& options) = 0;
};

}  // namespace lockstep::trainer
