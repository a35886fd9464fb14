#include "tests/support/cuda_on_host/convolution.h"

#include <algorithm>
#include <vector>

#include "tests/support/cuda_on_host/gemm.h"

namespace lockstep::cuda_on_host {
namespace {

// The values as the product sees them.
std::vector<float> Rounded(const ConvolutionShape& shape, const float* values, int64_t count) {
  std::vector<float> rounded(values, values + count);
  if (shape.tf32) std::transform(rounded.begin(), rounded.end(), rounded.begin(), ToTf32);
  return rounded;
}

// Calls `visit(pixel of the input, pixel of the output, position in the kernel)`, each times its channels or
// filters, for all pairs that meet.
template <typename Visit>
void ForEachMeeting(const ConvolutionShape& s, Visit&& visit) {
  for (int64_t image = 0; image < s.n; ++image) {
    for (int64_t i = 0; i < s.output_height * s.output_width; ++i) {
      const int64_t top = i / s.output_width * s.stride_height - s.pad_top;
      const int64_t left = i % s.output_width * s.stride_width - s.pad_left;
      for (int64_t k = 0; k < s.kernel_height * s.kernel_width; ++k) {
        const int64_t y = top + k / s.kernel_width, x = left + k % s.kernel_width;
        if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
        visit((image * s.height + y) * s.width + x, image * s.output_height * s.output_width + i, k);
      }
    }
  }
}

}  // namespace

void Convolve(const ConvolutionShape& s, const float* x, const float* kernel, float* y) {
  const std::vector<float> images = Rounded(s, x, s.inputs()), weights = Rounded(s, kernel, s.weights());
  std::fill_n(y, s.outputs(), 0.0f);
  ForEachMeeting(s, [&](int64_t input, int64_t output, int64_t position) {
    for (int64_t f = 0; f < s.filters; ++f) {
      const float* weight = weights.data() + (f * s.kernel_height * s.kernel_width + position) * s.channels;
      float sum = 0;
      for (int64_t c = 0; c < s.channels; ++c)
        sum += images[static_cast<size_t>(input * s.channels + c)] * weight[c];
      y[output * s.filters + f] += sum;
    }
  });
}

void ConvolveBackwardData(const ConvolutionShape& s, const float* kernel, const float* dy, float* dx) {
  const std::vector<float> gradients = Rounded(s, dy, s.outputs()), weights = Rounded(s, kernel, s.weights());
  std::fill_n(dx, s.inputs(), 0.0f);
  ForEachMeeting(s, [&](int64_t input, int64_t output, int64_t position) {
    for (int64_t f = 0; f < s.filters; ++f) {
      const float gradient = gradients[static_cast<size_t>(output * s.filters + f)];
      const float* weight = weights.data() + (f * s.kernel_height * s.kernel_width + position) * s.channels;
      for (int64_t c = 0; c < s.channels; ++c) dx[input * s.channels + c] += gradient * weight[c];
    }
  });
}

void ConvolveBackwardFilter(const ConvolutionShape& s, const float* x, const float* dy, float* dkernel) {
  const std::vector<float> images = Rounded(s, x, s.inputs()), gradients = Rounded(s, dy, s.outputs());
  std::fill_n(dkernel, s.weights(), 0.0f);
  ForEachMeeting(s, [&](int64_t input, int64_t output, int64_t position) {
    for (int64_t f = 0; f < s.filters; ++f) {
      const float gradient = gradients[static_cast<size_t>(output * s.filters + f)];
      float* weight = dkernel + (f * s.kernel_height * s.kernel_width + position) * s.channels;
      const float* image = images.data() + input * s.channels;
      for (int64_t c = 0; c < s.channels; ++c) weight[c] += gradient * image[c];
    }
  });
}

}  // namespace lockstep::cuda_on_host
