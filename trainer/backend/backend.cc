#include "trainer/backend/backend.h"

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
  }
  return "?";
}

void Backend::Require(Op op, DataType type) const {
  const Support support = Supports(op, type);
  if (support.supported) return;
  throw Unsupported(std::string(OpName(op)) + " in " + std::string(DataTypeName(type)) + " on " +
                    std::string(name()) + ": " + support.reason);
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
