#pragma once

#include <cstdint>

#include "trainer/backend/cpu/vector_kernels.h"
#include "trainer/backend/layer_kernels.h"

// The element-wise loops of the layers, each compiled once for every instruction set of vector_kernels.h.
// Matrices are [rows, columns], row-major.
namespace lockstep::trainer::cpu {

// By column.
struct NormalizationGradient {
  const float* shift = nullptr;
  const float* of_gradient = nullptr;
  const float* of_value = nullptr;
  const float* constant = nullptr;
};

struct DropoutDraw {
  uint64_t seed = 0;
  uint32_t epoch = 0;
  uint32_t stream = 0;
  uint32_t sample = 0;
  uint32_t least = 0;  // of 2^24: what is drawn below it goes
};

struct LayerLoops {
  // sums += Σ (x − shift), squares += Σ (x − shift)², by column.
  void (*moments)(int64_t rows, int64_t columns, const float* x, const float* shift, double* sums,
                  double* squares);
  // y = x · factor + offset, by column; with relu not below 0.
  void (*scale_columns)(int64_t rows, int64_t columns, const float* x, const float* factor,
                        const float* offset, bool relu, float* y);
  // With d = dy, or 0 where y is not positive, unless it is null: sums += Σ d, products += Σ d · (x − shift).
  void (*gradient_moments)(int64_t rows, int64_t columns, const float* x, const float* y, const float* dy,
                           const float* shift, double* sums, double* products);
  // dx = of_gradient · d + of_value · (x − shift) + constant.
  void (*normalization_gradient)(int64_t rows, int64_t columns, const float* x, const float* y,
                                 const float* dy, const NormalizationGradient& by, float* dx);

  // `scratch`: LocalResponseScratch(options) floats.
  void (*local_response)(const LocalResponseOptions& options, int64_t pixels, const float* x, float* y,
                         float* scratch);
  void (*local_response_gradient)(const LocalResponseOptions& options, int64_t pixels, const float* x,
                                  const float* y, const float* dy, float* dx, float* scratch);

  void (*add)(int64_t count, const float* a, const float* b, float* y);
  void (*add_relu)(int64_t count, const float* a, const float* b, float* y);
  void (*relu)(int64_t count, const float* x, float* y);
  void (*mask_gradient)(int64_t count, const float* y, const float* dy, float* dx);
  void (*gelu)(int64_t count, const float* x, float* y);
  void (*gelu_gradient)(int64_t count, const float* x, const float* dy, float* dx);
  void (*softmax_gradient)(int64_t rows, int64_t columns, const float* y, const float* dy, float* dx);

  // y [n, channels] = mean over the pixels of x [n, pixels, channels]; and back.
  void (*mean_of_pixels)(int64_t n, int64_t pixels, int64_t channels, const float* x, float* y);
  void (*spread_over_pixels)(int64_t n, int64_t pixels, int64_t channels, const float* dy, float* dx);

  void (*layer_normalization)(int64_t rows, int64_t columns, float epsilon, const float* x,
                              const float* gamma, const float* beta, float* y);
  // Adds to dgamma and dbeta; each may be null, and so may gamma and dx.
  void (*layer_normalization_gradient)(int64_t rows, int64_t columns, float epsilon, const float* x,
                                       const float* gamma, const float* dy, float* dgamma, float* dbeta,
                                       float* dx);

  // mask = 1 or 0, for the `count` values of one sample.
  void (*draw_mask)(const DropoutDraw& draw, int64_t count, uint8_t* mask);
  void (*apply_mask)(int64_t count, const uint8_t* mask, float scale, const float* x, float* y);
};

const LayerLoops& LoopsFor(Isa isa);

// Pixels that local_response does at a time.
inline constexpr int64_t kLocalResponsePixels = 16;
inline int64_t LocalResponseScratch(const LocalResponseOptions& options) {
  return kLocalResponsePixels * 3 * (options.input.channels + 2 * options.radius);
}

}  // namespace lockstep::trainer::cpu
