#include "trainer/backend/cpu/loss.h"

#include <cmath>
#include <vector>

namespace lockstep::trainer::cpu {
namespace {

// Gradients computed in float32 are handed on in the type the products want.
class GradientSink {
 public:
  GradientSink(DataType type, const VectorKernels& kernels) : type_(type), kernels_(kernels) {}

  // Where to compute `count` gradients that are to end in `dy`.
  float* Begin(int64_t count, void* dy) {
    if (type_ == DataType::kFloat32) return static_cast<float*>(dy);
    if (buffer_.size() < static_cast<size_t>(count)) buffer_.resize(static_cast<size_t>(count));
    return buffer_.data();
  }
  void End(int64_t count, void* dy) {
    if (type_ == DataType::kBFloat16) kernels_.to_bfloat16(count, buffer_.data(), static_cast<BFloat16*>(dy));
  }

 private:
  DataType type_;
  const VectorKernels& kernels_;
  std::vector<float> buffer_;
};

// loss = log Σ_j e^(y_j) − Σ_j target_j · y_j, and ∂loss/∂y_j = softmax(y)_j − target_j (Goodfellow, Bengio,
// Courville: Deep Learning, 6.2.2.3); the target is 1 for the label unless it is smoothed.
class SparseCategoricalCrossentropy final : public LossKernel {
 public:
  SparseCategoricalCrossentropy(const LossOptions& options, const VectorKernels& kernels)
      : outputs_(options.outputs),
        smoothing_(options.label_smoothing),
        kernels_(kernels),
        sink_(options.output_gradient, kernels) {}

  void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy, LossSums* sums,
               int64_t before) override {
    const ScopedFlushDenormals flush;
    const auto* label = static_cast<const int32_t*>(labels);
    if (sums_.size() < static_cast<size_t>(n)) {
      exponentials_.resize(static_cast<size_t>(n * outputs_));
      sums_.resize(static_cast<size_t>(n));
      maxima_.resize(static_cast<size_t>(n));
    }
    kernels_.exponentials(n, outputs_, y, exponentials_.data(), sums_.data(), maxima_.data());

    LossSums& result = *sums;
    if (before == 0) result = {};
    for (int64_t r = 0; r < n; ++r) {
      if (label[r] < 0 || label[r] >= outputs_) {
        if (result.wrong != 0) return;
        result.wrong = before + r + 1;
        result.wrong_label = label[r];
        return;
      }
      const float* row = y + r * outputs_;
      result.loss_sum += std::log(static_cast<double>(sums_[static_cast<size_t>(r)])) +
                         (static_cast<double>(maxima_[static_cast<size_t>(r)]) - Expected(row, label[r]));
      result.correct += IsFirstLargest(row, label[r], maxima_[static_cast<size_t>(r)]) ? 1 : 0;
    }
    if (dy == nullptr) return;

    float* gradient = sink_.Begin(n * outputs_, dy);
    kernels_.scale_rows(n, outputs_, exponentials_.data(), sums_.data(), scale, gradient);
    if (smoothing_ != 0) {
      const float others = scale * smoothing_ / static_cast<float>(outputs_);
      for (int64_t i = 0; i < n * outputs_; ++i) gradient[i] -= others;
    }
    for (int64_t r = 0; r < n; ++r) gradient[r * outputs_ + label[r]] -= scale * (1 - smoothing_);
    sink_.End(n * outputs_, dy);
  }

 private:
  // Σ target_j · y_j.
  double Expected(const float* row, int32_t label) const {
    if (smoothing_ == 0) return row[label];
    double sum = 0;
    for (int64_t i = 0; i < outputs_; ++i) sum += row[i];
    return (1.0 - smoothing_) * row[label] + smoothing_ * sum / static_cast<double>(outputs_);
  }

  // As argmax has it: of equal outputs the first counts.
  static bool IsFirstLargest(const float* row, int32_t label, float largest) {
    if (row[label] != largest) return false;
    for (int32_t i = 0; i < label; ++i) {
      if (row[i] == largest) return false;
    }
    return true;
  }

  int64_t outputs_;
  float smoothing_;
  const VectorKernels& kernels_;
  GradientSink sink_;
  std::vector<float> exponentials_;
  std::vector<float> sums_;
  std::vector<float> maxima_;
};

// loss = mean over the outputs of (y − target)².
class MeanSquaredError final : public LossKernel {
 public:
  MeanSquaredError(const LossOptions& options, const VectorKernels& kernels)
      : outputs_(options.outputs), sink_(options.output_gradient, kernels) {}

  void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy, LossSums* sums,
               int64_t before) override {
    const ScopedFlushDenormals flush;
    const auto* target = static_cast<const float*>(labels);
    const int64_t count = n * outputs_;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double error = static_cast<double>(y[i]) - target[i];
      sum += error * error;
    }
    if (dy != nullptr) {
      float* gradient = sink_.Begin(count, dy);
      const float factor = 2 * scale / static_cast<float>(outputs_);
      for (int64_t i = 0; i < count; ++i) gradient[i] = factor * (y[i] - target[i]);
      sink_.End(count, dy);
    }
    if (before == 0) *sums = {};
    sums->loss_sum += sum / static_cast<double>(outputs_);
  }

 private:
  int64_t outputs_;
  GradientSink sink_;
};

}  // namespace

std::unique_ptr<LossKernel> MakeLoss(const LossOptions& options, const VectorKernels& kernels) {
  if (options.kind == LossKind::kMeanSquaredError)
    return std::make_unique<MeanSquaredError>(options, kernels);
  return std::make_unique<SparseCategoricalCrossentropy>(options, kernels);
}

}  // namespace lockstep::trainer::cpu
