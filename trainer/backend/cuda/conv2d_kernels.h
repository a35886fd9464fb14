#pragma once

#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/layer_kernels.h"

// What a convolution needs besides cuDNN's.
namespace lockstep::trainer::cuda {

// y [pixels, channels] = activation(y + bias); `bias` may be null.
void AddBias(int64_t pixels, int64_t channels, const float* bias, bool relu, float* y,
             const KernelContext& context);

// Where an image lies in a larger or smaller one.
struct Frame {
  ImageShape image;
  ImageShape framed;
  int64_t top = 0;
  int64_t left = 0;
};
// framed = image, cut off at the frame's end, with zeros around it.
void PutIntoFrame(const Frame& frame, int64_t n, const float* images, float* framed,
                  const KernelContext& context);
// image = what of the frame lies over it, zeros elsewhere.
void TakeFromFrame(const Frame& frame, int64_t n, const float* framed, float* images,
                   const KernelContext& context);

}  // namespace lockstep::trainer::cuda
