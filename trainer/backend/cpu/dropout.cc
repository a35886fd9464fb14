#include <cmath>

#include "trainer/backend/cpu/layer_kernels.h"

namespace lockstep::trainer::cpu {
namespace {

class Dropout final : public DropoutKernel {
 public:
  Dropout(float rate, int64_t features, const LayerLoops& loops)
      : rate_(rate), features_(features), loops_(loops) {}

  size_t saved_bytes(int64_t n) const override { return static_cast<size_t>(n * features_); }

  void Forward(int64_t n, const float* x, float* y, void* saved, const DropoutKeys& keys) override {
    auto* const mask = static_cast<uint8_t*>(saved);
    for (int64_t i = 0; i < n; ++i) {
      loops_.draw_mask({.seed = keys.seed,
                        .epoch = keys.epoch,
                        .stream = keys.stream,
                        .sample = keys.samples[static_cast<size_t>(i)],
                        .least = static_cast<uint32_t>(std::lround(rate_ * 0x1p24f))},
                       features_, mask + i * features_);
    }
    loops_.apply_mask(n * features_, mask, 1 / (1 - rate_), x, y);
  }
  void Backward(int64_t n, const void* saved, const float* dy, float* dx) override {
    loops_.apply_mask(n * features_, static_cast<const uint8_t*>(saved), 1 / (1 - rate_), dy, dx);
  }

 private:
  float rate_;
  int64_t features_;
  const LayerLoops& loops_;
};

}  // namespace

std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features, Context& context) {
  return std::make_unique<Dropout>(rate, features, context.loops());
}

}  // namespace lockstep::trainer::cpu
