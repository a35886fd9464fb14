#include "trainer/backend/backend.h"

#include <iterator>
#include <vector>

#include "trainer/error.h"

namespace lockstep::trainer {

std::string_view OpName(Op op) {
  switch (op) {
    case Op::kDense:
      return "Dense";
    case Op::kMatMul:
      return "MatMul";
    case Op::kSoftmaxCrossEntropy:
      return "SoftmaxCrossEntropy";
    case Op::kMeanSquaredError:
      return "MeanSquaredError";
    case Op::kSgd:
      return "SGD";
    case Op::kAdam:
      return "Adam";
    case Op::kConv2D:
      return "Conv2D";
    case Op::kPool:
      return "Pool";
    case Op::kLocalResponseNormalization:
      return "LocalResponseNormalization";
    case Op::kActivation:
      return "Activation";
    case Op::kBatchNormalization:
      return "BatchNormalization";
    case Op::kLayerNormalization:
      return "LayerNormalization";
    case Op::kEmbedding:
      return "Embedding";
    case Op::kDropout:
      return "Dropout";
    case Op::kAdd:
      return "Add";
  }
  return "?";
}

void Backend::Require(Op op, DataType type) const {
  if (!Supports(op, type).supported) Refuse(op, type);
}

void Backend::Refuse(Op op, DataType type) const {
  throw Unsupported(std::string(OpName(op)) + " in " + std::string(DataTypeName(type)) + " on " +
                    std::string(name()) + ": " + Supports(op, type).reason);
}

std::unique_ptr<ProductKernel> Backend::MakeConv2D(const Conv2DOptions& /*options*/) {
  Refuse(Op::kConv2D, DataType::kFloat32);
}
std::unique_ptr<FunctionKernel> Backend::MakeFunction(const FunctionOptions& options) {
  constexpr Op kOps[] = {Op::kPool, Op::kPool, Op::kLocalResponseNormalization, Op::kActivation};
  static_assert(std::variant_size_v<FunctionOptions> == std::size(kOps));
  Refuse(kOps[options.index()], DataType::kFloat32);
}
std::unique_ptr<BatchNormalizationKernel> Backend::MakeBatchNormalization(
    const BatchNormalizationOptions& /*options*/) {
  Refuse(Op::kBatchNormalization, DataType::kFloat32);
}
std::unique_ptr<RowKernel> Backend::MakeLayerNormalization(const LayerNormalizationOptions& /*options*/) {
  Refuse(Op::kLayerNormalization, DataType::kFloat32);
}
std::unique_ptr<RowKernel> Backend::MakeEmbedding(const EmbeddingOptions& /*options*/) {
  Refuse(Op::kEmbedding, DataType::kFloat32);
}
std::unique_ptr<DropoutKernel> Backend::MakeDropout(float /*rate*/, int64_t /*features*/) {
  Refuse(Op::kDropout, DataType::kFloat32);
}
void Backend::Add(int64_t /*count*/, const float* /*a*/, const float* /*b*/, bool /*relu*/, float* /*y*/) {
  Refuse(Op::kAdd, DataType::kFloat32);
}
void Backend::Copy(int64_t /*count*/, const float* /*from*/, float* /*to*/) {
  Refuse(Op::kAdd, DataType::kFloat32);
}
void Backend::MaskGradient(int64_t /*count*/, const float* /*y*/, float* /*dy*/) {
  Refuse(Op::kAdd, DataType::kFloat32);
}

void Backend::MatMul(DataType type, int64_t m, int64_t n, int64_t k, const void* a, const void* b, void* c) {
  Require(Op::kMatMul, type);
  if (type != DataType::kFloat32) throw Unsupported("MatMul is for Float32 here");
  const auto dense = MakeDense({.inputs = k, .units = n, .bias = false, .max_batch = m});
  // The kernel may be stored in another order than b is.
  std::vector<float> canonical(static_cast<size_t>(k * n));
  Download(canonical.data(), b, canonical.size() * sizeof(float));
  std::vector<float> stored(static_cast<size_t>(dense->stored_size()));
  dense->FromCanonical(canonical.data(), stored.data());
  const Buffer kernel(allocator(), stored.size() * sizeof(float));
  Upload(kernel.data(), stored.data(), kernel.bytes());
  dense->Bind({.kernel = kernel.as<float>()});
  dense->KernelChanged(0, dense->stored_size());
  dense->Forward(m, a, c);
  Synchronize();
}

LossResult ResultOf(const LossSums& sums, int64_t outputs) {
  if (sums.wrong > 0) {
    throw BadData("sample " + std::to_string(sums.wrong - 1) + " of the batch has label " +
                  std::to_string(sums.wrong_label) + "; the model has outputs 0 to " +
                  std::to_string(outputs - 1));
  }
  return {.loss_sum = sums.loss_sum, .correct = sums.correct};
}

}  // namespace lockstep::trainer
