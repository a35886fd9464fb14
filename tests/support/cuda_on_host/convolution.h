#pragma once

#include <cstdint>

namespace lockstep::cuda_on_host {

// Of float32, channels-last; the kernel is [filters, height, width, channels].
struct ConvolutionShape {
  int64_t n = 0;
  int64_t height = 0, width = 0, channels = 0;
  int64_t kernel_height = 0, kernel_width = 0, filters = 0;
  int64_t output_height = 0, output_width = 0;
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_left = 0;
  bool tf32 = false;  // inputs are rounded to TF32's 10 bits

  int64_t inputs() const { return n * height * width * channels; }
  int64_t outputs() const { return n * output_height * output_width * filters; }
  int64_t weights() const { return filters * kernel_height * kernel_width * channels; }
};

// y = x * kernel; and the gradients. Summed in float32, in one order.
void Convolve(const ConvolutionShape& shape, const float* x, const float* kernel, float* y);
void ConvolveBackwardData(const ConvolutionShape& shape, const float* kernel, const float* dy, float* dx);
void ConvolveBackwardFilter(const ConvolutionShape& shape, const float* x, const float* dy, float* dkernel);

}  // namespace lockstep::cuda_on_host
