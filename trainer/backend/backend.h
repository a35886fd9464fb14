#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trainer/backend/kernels.h"
#include "trainer/backend/layer_kernels.h"
#include "trainer/tensor/buffer.h"
#include "trainer/tensor/dtype.h"

// backend/ does the arithmetic of one device. Backend is the one interface; cpu/ implements it on oneDNN, and
// a device more is an implementation more. Above it nobody knows a vendor's library: layers/ and optimizer/
// ask a backend for kernels and hand them pointers.
//
// All pointers given to a backend lie in memory of its allocator() or, for the CPU, anywhere in the process;
// 64-byte alignment is best. Work of one backend runs in the order it was asked for; Synchronize() waits for
// it. A backend and what it made belong to one thread at a time. Failures are thrown as in trainer/error.h.
namespace lockstep::trainer {

// What can be asked for; each with the element type it computes in.
enum class Op {
  kDense,
  kMatMul,
  kSoftmaxCrossEntropy,
  kMeanSquaredError,
  kSgd,
  kAdam,
  kConv2D,
  kPool,
  kLocalResponseNormalization,
  kActivation,
  kBatchNormalization,
  kLayerNormalization,
  kEmbedding,
  kDropout,
  kAdd,
};
std::string_view OpName(Op op);

struct Support {
  bool supported = false;
  bool native = false;  // the hardware has instructions for it; else it is emulated, rightly but slower
  std::string
      reason;  // why not supported, or not native: "BFloat16 needs AVX-512, and this processor has AVX2"
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;    // "CPU"
  virtual std::string description() const = 0;  // for the log: "oneDNN 2.6.3, AVX512_CORE_BF16, 1 thread"
  virtual Support Supports(Op op, DataType type) const = 0;
  // Throws Unsupported, naming operation, type, device and reason, where Supports says no.
  void Require(Op op, DataType type) const;

  virtual Allocator& allocator() = 0;
  // Between host memory and memory of allocator(). Both block until done.
  virtual void Upload(void* to, const void* from_host, size_t bytes) = 0;
  virtual void Download(void* to_host, const void* from, size_t bytes) = 0;
  virtual void Zero(void* data, size_t bytes) = 0;
  virtual void Synchronize() = 0;

  // Throw Unsupported (operation, type, device and reason) where Supports says no.
  virtual std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options) = 0;
  virtual std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options) = 0;

  // As above; a backend that has none of these need not say more than in Supports.
  virtual std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options);
  virtual std::unique_ptr<FunctionKernel> MakeFunction(const FunctionOptions& options);
  virtual std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(
      const BatchNormalizationOptions& options);
  virtual std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options);
  virtual std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options);
  virtual std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features);
  // y = a + b, or max(0, a + b); y may be one of them.
  virtual void Add(int64_t count, const float* a, const float* b, bool relu, float* y);
  virtual void Copy(int64_t count, const float* from, float* to);
  // dy = 0 where y is not positive.
  virtual void MaskGradient(int64_t count, const float* y, float* dy);

  // c [m, n] = a [m, k] · b [k, n], all of `type`, row-major. For products placed by hand; layers have
  // kernels of their own. Throws Unsupported as above.
  virtual void MatMul(DataType type, int64_t m, int64_t n, int64_t k, const void* a, const void* b, void* c);

  // One pass of an optimizer's rule over elements [begin, end) of the flat buffers; any range, and the same
  // bits however the whole is cut into ranges.
  virtual void Sgd(const SgdStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) = 0;
  virtual void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) = 0;
  // average = keep · average + (1 − keep) · parameters over [begin, end). `average` is a whole flat buffer
  // too, and keep that of `rates` (UpdateBuffers::rates), if given.
  virtual void MoveAverage(float keep, const StepRates* rates, const float* parameters, float* average,
                           int64_t begin, int64_t end) = 0;
  // to += factor · from.
  virtual void Accumulate(float factor, const float* from, float* to, int64_t count) = 0;
  // Σ x² of float32, in double.
  virtual double SumOfSquares(const float* data, int64_t count) = 0;

 protected:
  [[noreturn]] void Refuse(Op op, DataType type) const;
};

}  // namespace lockstep::trainer
