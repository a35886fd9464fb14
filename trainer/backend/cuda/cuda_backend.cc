#include "trainer/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/backend/cuda/conv2d.h"
#include "trainer/backend/cuda/cudnn_session.h"
#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/cuda/dataset.h"
#include "trainer/backend/cuda/dense.h"
#include "trainer/backend/cuda/events.h"
#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/cuda/identity.h"
#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/loss.h"
#include "trainer/backend/cuda/memory.h"
#include "trainer/backend/cuda/on_device.h"
#include "trainer/backend/cuda/optimizer.h"
#include "trainer/backend/cuda/reduce.h"
#include "trainer/backend/cuda/set_float.h"
#include "trainer/backend/cuda/supports.h"

namespace lockstep::trainer::cuda {
namespace {

CublasLtHandle MakeCublasLt() {
  CublasLtHandle handle;
  LOCKSTEP_CUBLAS(cublasLtCreate(handle.Receive()));
  return handle;
}

// "13.0" for 13000.
std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

struct FunctionMaker {
  const KernelContext& context;
  std::unique_ptr<FunctionKernel> operator()(const PoolOptions& pool) const {
    return MakePool(pool, context);
  }
  std::unique_ptr<FunctionKernel> operator()(const GlobalAveragePoolOptions& pool) const {
    return MakeGlobalAveragePool(pool, context);
  }
  std::unique_ptr<FunctionKernel> operator()(const LocalResponseOptions& response) const {
    return MakeLocalResponse(response, context);
  }
  std::unique_ptr<FunctionKernel> operator()(const ActivationOptions& activation) const {
    return MakeActivation(activation, context);
  }
};

class CudaBackend final : public DeviceBackend {
 public:
  explicit CudaBackend(const DeviceOptions& options)
      : identity_(IdentityOf(options.ordinal)),
        policy_(options.policy),
        name_("GPU:" + std::to_string(options.ordinal)),
        compute_((UseDevice(options.ordinal), MakeStream(0))),
        communication_(MakeStream(HighestPriority())),
        blas_(MakeCublasLt()),
        memory_(
            DeviceMemory::Make({.policy = options, .device = NameOf(identity_), .stream = compute_.get()})),
        workspace_(memory_->pooled(), WorkspaceBytesFor(identity_.capability)),
        scratch_(memory_->pooled(), kSumOfSquaresScratch * sizeof(double)) {
    context_ = {.stream = compute_.get(),
                .blas = blas_.get(),
                .workspace = workspace_.data(),
                .workspace_bytes = workspace_.bytes(),
                .allocator = &memory_->pooled(),
                .pinned = &memory_->pinned(),
                .checks = &checks_,
                .capability = identity_.capability,
                .device = NameOf(identity_)};
    LOCKSTEP_CUDA(
        cudaDeviceGetAttribute(&context_.multiprocessors, cudaDevAttrMultiProcessorCount, options.ordinal));
  }
  ~CudaBackend() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(identity_.ordinal)); }

  std::string_view name() const override { return name_; }
  std::string description() const override {
    int runtime = 0;
    int driver = 0;
    LOCKSTEP_CUDA(cudaRuntimeGetVersion(&runtime));
    LOCKSTEP_CUDA(cudaDriverGetVersion(&driver));
    return identity_.name + ", sm_" + std::to_string(identity_.capability) + ", CUDA " +
           VersionName(runtime) + ", driver for CUDA " + VersionName(driver) + ", memory " +
           std::string(PolicyName(policy_));
  }
  const DeviceIdentity& identity() const override { return identity_; }
  DeviceMemoryUse memory_use() override { return memory_->use(); }
  Support Supports(Op op, DataType type) const override {
    Support support = cuda::Supports(op, type, identity_.capability, context_.device);
    if (op != Op::kConv2D || !support.supported) return support;
    support.supported = support.native = cudnn_.Available(&support.reason);
    return support;
  }

  Allocator& allocator() override { return memory_->pooled(); }
  Allocator& pinned() override { return memory_->pinned(); }
  Allocator& shareable() override { return memory_->shareable(); }

  Stream compute_stream() override { return compute_.get(); }
  Stream communication_stream() override { return communication_.get(); }
  std::unique_ptr<DeviceEvent> MakeEvent(bool timing) override {
    return MakeDeviceEvent(timing, identity_.ordinal);
  }
  std::unique_ptr<DeviceGraph> Record(const std::function<void()>& enqueue) override {
    struct Recording {
      explicit Recording(DeviceMemory& memory) : memory(memory) { memory.SetRecording(true); }
      ~Recording() { memory.SetRecording(false); }
      DeviceMemory& memory;
    } const recording(*memory_);
    return RecordGraph(compute_.get(), identity_.ordinal, enqueue);
  }

  void Upload(void* to, const void* from_host, size_t bytes) override {
    CopyAsync(to, from_host, bytes);
    Synchronize();
  }
  void Download(void* to_host, const void* from, size_t bytes) override {
    CopyAsync(to_host, from, bytes);
    Synchronize();
  }
  void CopyAsync(void* to, const void* from, size_t bytes) override {
    Use();
    if (bytes > 0) LOCKSTEP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, compute_.get()));
  }
  void Zero(void* data, size_t bytes) override {
    Use();
    if (bytes > 0) LOCKSTEP_CUDA(cudaMemsetAsync(data, 0, bytes, compute_.get()));
  }
  void Synchronize() override {
    Use();
    LOCKSTEP_CUDA(cudaStreamSynchronize(compute_.get()));
    checks_.Look();
  }
  void SetFloat(float* where, float value) override {
    Use();
    cuda::SetFloat(where, value, compute_.get());
  }

  std::unique_ptr<ProductKernel> MakeDense(const DenseOptions& options) override {
    Require(Op::kDense, options.input);
    Require(Op::kDense, options.output);
    Use();
    return std::make_unique<ProductOnDevice>(identity_.ordinal, cuda::MakeDense(options, context_));
  }
  std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options) override {
    Require(options.kind == LossKind::kMeanSquaredError ? Op::kMeanSquaredError : Op::kSoftmaxCrossEntropy,
            options.output_gradient);
    Use();
    return std::make_unique<LossOnDevice>(identity_.ordinal, cuda::MakeLoss(options, context_));
  }
  std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options) override {
    Require(Op::kConv2D, DataType::kFloat32);
    Use();
    return std::make_unique<ProductOnDevice>(identity_.ordinal, cuda::MakeConv2D(options, cudnn_, context_));
  }
  std::unique_ptr<FunctionKernel> MakeFunction(const FunctionOptions& options) override {
    Use();
    return std::make_unique<FunctionOnDevice>(identity_.ordinal,
                                              std::visit(FunctionMaker{context_}, options));
  }
  std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(
      const BatchNormalizationOptions& options) override {
    Use();
    return std::make_unique<BatchNormalizationOnDevice>(identity_.ordinal,
                                                        cuda::MakeBatchNormalization(options, context_));
  }
  std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options) override {
    Use();
    return std::make_unique<RowsOnDevice>(identity_.ordinal, cuda::MakeLayerNormalization(options, context_));
  }
  std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options) override {
    Use();
    return std::make_unique<RowsOnDevice>(identity_.ordinal, cuda::MakeEmbedding(options, context_));
  }
  std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features) override {
    Use();
    return std::make_unique<DropoutOnDevice>(identity_.ordinal, cuda::MakeDropout(rate, features, context_));
  }
  void Add(int64_t count, const float* a, const float* b, bool relu, float* y) override {
    Use();
    cuda::Add(count, a, b, relu, y, context_);
  }
  void Copy(int64_t count, const float* from, float* to) override {
    CopyAsync(to, from, static_cast<size_t>(count) * sizeof(float));
  }
  void MaskGradient(int64_t count, const float* y, float* dy) override {
    Use();
    cuda::MaskGradient(count, y, dy, context_);
  }
  std::unique_ptr<DeviceDataset> MakeDataset(const DeviceDatasetOptions& options) override {
    Use();
    return std::make_unique<DatasetOnDevice>(identity_.ordinal,
                                             cuda::MakeDataset(options, ResidentBytes(), context_));
  }

  void Sgd(const SgdStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) override {
    Use();
    cuda::Sgd(step, buffers, begin, end, context_);
  }
  void Adam(const AdamStep& step, const UpdateBuffers& buffers, int64_t begin, int64_t end) override {
    Use();
    cuda::Adam(step, buffers, begin, end, context_);
  }
  void MoveAverage(float keep, const StepRates* rates, const float* parameters, float* average, int64_t begin,
                   int64_t end) override {
    Use();
    cuda::MoveAverage(keep, rates, parameters, average, begin, end, context_);
  }
  void Accumulate(float factor, const float* from, float* to, int64_t count) override {
    Use();
    cuda::Accumulate(factor, from, to, count, context_);
  }
  void SumOfSquaresAsync(const float* data, int64_t count, double* sum) override {
    Use();
    cuda::SumOfSquares(data, count, scratch_.as<double>(), context_);
    CopyAsync(sum, scratch_.data(), sizeof *sum);
  }
  void AddSumOfSquaresAsync(const float* data, int64_t count, double* sum) override {
    Use();
    cuda::SumOfSquares(data, count, scratch_.as<double>(), context_);
    cuda::AddNumber(scratch_.as<double>(), sum, context_);
  }
  double SumOfSquares(const float* data, int64_t count) override {
    Use();
    cuda::SumOfSquares(data, count, scratch_.as<double>(), context_);
    double sum = 0;
    Download(&sum, scratch_.data(), sizeof sum);
    return sum;
  }

 private:
  void Use() const {
    checks_.Look();
    UseDevice(identity_.ordinal);
  }

  // What a dataset may take: half of what is left, as buffers of batches and gradients may come after it.
  int64_t ResidentBytes() {
    const DeviceMemoryUse use = memory_->use();
    size_t free = 0;
    size_t total = 0;
    LOCKSTEP_CUDA(cudaMemGetInfo(&free, &total));
    int64_t left = static_cast<int64_t>(free) + use.held - use.used;
    if (use.limit > 0) left = std::min(left, use.limit - use.used);
    return left / 2;
  }

  DeviceIdentity identity_;
  MemoryPolicy policy_;
  std::string name_;
  CudaStream compute_;
  CudaStream communication_;
  CublasLtHandle blas_;
  std::unique_ptr<DeviceMemory> memory_;
  Buffer workspace_;
  Buffer scratch_;
  NumberChecks checks_;
  mutable CudnnSession cudnn_;  // (Whether there is one is asked of what does not change.)
  KernelContext context_;
};

}  // namespace

std::unique_ptr<DeviceBackend> MakeCudaBackend(const DeviceOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace lockstep::trainer::cuda
