#include <algorithm>
#include <string>

#include "trainer/backend/cpu/layer_kernels.h"
#include "trainer/error.h"

namespace lockstep::trainer::cpu {
namespace {

class LayerNormalization final : public RowKernel {
 public:
  LayerNormalization(const LayerNormalizationOptions& options, const LayerLoops& loops)
      : options_(options), loops_(loops) {}

  void Bind(const Variables& variables) override { variables_ = variables; }

  void Forward(int64_t n, const float* x, float* y) override {
    const ScopedFlushDenormals flush;
    loops_.layer_normalization(n * options_.rows, options_.last_axis, options_.epsilon, x,
                               variables_.values[0], variables_.values[1], y);
  }
  void Backward(int64_t n, const float* x, const float* dy, float* dx) override {
    const ScopedFlushDenormals flush;
    for (float* gradient : variables_.gradients) {
      if (gradient != nullptr) std::fill_n(gradient, options_.last_axis, 0.0f);
    }
    loops_.layer_normalization_gradient(n * options_.rows, options_.last_axis, options_.epsilon, x,
                                        variables_.values[0], dy, variables_.gradients[0],
                                        variables_.gradients[1], dx);
  }

 private:
  LayerNormalizationOptions options_;
  const LayerLoops& loops_;
  Variables variables_;
};

class Embedding final : public RowKernel {
 public:
  explicit Embedding(const EmbeddingOptions& options) : options_(options) {}

  void Bind(const Variables& variables) override { variables_ = variables; }

  void Forward(int64_t n, const float* x, float* y) override {
    for (int64_t i = 0; i < n * options_.positions; ++i) {
      const int64_t entry = EntryOf(x[i], i);
      std::copy_n(variables_.values[0] + entry * options_.width, options_.width, y + i * options_.width);
    }
  }
  void Backward(int64_t n, const float* x, const float* dy, float* /*dx*/) override {
    float* const gradient = variables_.gradients[0];
    std::fill_n(gradient, options_.entries * options_.width, 0.0f);
    for (int64_t i = 0; i < n * options_.positions; ++i) {
      float* row = gradient + EntryOf(x[i], i) * options_.width;
      for (int64_t j = 0; j < options_.width; ++j) row[j] += dy[i * options_.width + j];
    }
  }

 private:
  int64_t EntryOf(float number, int64_t position) const {
    if (number >= 0 && number < static_cast<float>(options_.entries)) return static_cast<int64_t>(number);
    throw BadData("sample " + std::to_string(position / options_.positions) +
                  " of the batch has the number " + std::to_string(number) +
                  "; the Embedding has entries 0 to " + std::to_string(options_.entries - 1));
  }

  EmbeddingOptions options_;
  Variables variables_;
};

}  // namespace

std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options,
                                                  Context& context) {
  return std::make_unique<LayerNormalization>(options, context.loops());
}

std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options) {
  return std::make_unique<Embedding>(options);
}

}  // namespace lockstep::trainer::cpu
