#include <algorithm>
#include <cmath>

#include "trainer/backend/cuda/elementwise.cuh"
#include "trainer/backend/cuda/layer_kernels.h"
#include "trainer/backend/cuda/recording.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kValues = 4;  // of one block of random numbers
// As many as fit into a kernel's arguments, of which there are 4 KiB, beside the others.
constexpr int64_t kMostSamples = 896;

struct Draw {
  uint64_t seed;
  uint32_t epoch;
  uint32_t stream;
  uint32_t least;  // of 2^24: what is drawn below it goes
  float scale;
  uint32_t samples[kMostSamples];
};
static_assert(sizeof(Draw) <= 3800);

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC'11).
__device__ void Philox(uint64_t seed, uint32_t (&c)[4]) {
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * c[2];
    c[0] = static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(product1);
    c[2] = static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

// A block has values of one sample, a thread those of one block of random numbers.
__global__ void __launch_bounds__(kThreads)
    DropoutForward(Draw draw, int64_t features, const float* x, float* y, uint8_t* mask) {
  const unsigned block = blockIdx.y * kThreads + threadIdx.x;
  uint32_t words[4] = {block, draw.samples[blockIdx.x], draw.epoch, draw.stream};
  Philox(draw.seed, words);
  const int64_t sample = blockIdx.x * features;
  for (int i = 0; i < kValues; ++i) {
    const int64_t value = static_cast<int64_t>(block) * kValues + i;
    if (value >= features) return;
    const bool stays = (words[i] >> 8) >= draw.least;
    mask[sample + value] = stays ? 1 : 0;
    y[sample + value] = stays ? x[sample + value] * draw.scale : 0.0f;
  }
}

__global__ void __launch_bounds__(kElementThreads)
    DropoutBackward(int64_t count, float scale, const uint8_t* mask, const float* dy, float* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < count; i += stride) {
    dx[i] = mask[i] != 0 ? dy[i] * scale : 0.0f;
  }
}

class Dropout final : public DropoutKernel {
 public:
  Dropout(float rate, int64_t features, const KernelContext& context)
      : rate_(rate), features_(features), context_(context) {}

  size_t saved_bytes(int64_t n) const override { return static_cast<size_t>(n * features_); }

  void Forward(int64_t n, const float* x, float* y, void* saved, const DropoutKeys& keys) override {
    if (IsRecording(context_.stream)) throw NotRecordable("Dropout draws anew in every step");
    Draw draw{.seed = keys.seed,
              .epoch = keys.epoch,
              .stream = keys.stream,
              .least = static_cast<uint32_t>(std::lround(rate_ * 0x1p24f)),
              .scale = 1 / (1 - rate_),
              .samples = {}};
    auto* const mask = static_cast<uint8_t*>(saved);
    for (int64_t first = 0; first < n; first += kMostSamples) {
      const int64_t some = std::min(kMostSamples, n - first);
      std::copy_n(keys.samples.data() + first, some, draw.samples);
      const dim3 grid(static_cast<unsigned>(some),
                      static_cast<unsigned>(CeilDiv(features_, int64_t{kValues} * kThreads)));
      LOCKSTEP_LAUNCH(DropoutForward, grid, kThreads, 0, context_.stream, draw, features_,
                      x + first * features_, y + first * features_, mask + first * features_);
    }
  }
  void Backward(int64_t n, const void* saved, const float* dy, float* dx) override {
    const int64_t count = n * features_;
    LOCKSTEP_LAUNCH(DropoutBackward, ElementBlocks(count, context_), kElementThreads, 0, context_.stream,
                    count, 1 / (1 - rate_), static_cast<const uint8_t*>(saved), dy, dx);
  }

 private:
  const float rate_;
  const int64_t features_;
  const KernelContext context_;
};

}  // namespace

std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features, const KernelContext& context) {
  return std::make_unique<Dropout>(rate, features, context);
}

}  // namespace lockstep::trainer::cuda
