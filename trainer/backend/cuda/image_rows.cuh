#pragma once

#include <cstdint>

#include "trainer/backend/cuda/numbers.cuh"
#include "trainer/backend/layer_kernels.h"

namespace lockstep::trainer::cuda {

// A thread has one value of a batch of images; a block a part of one row of one image, so that the places of
// its values follow by divisions of small numbers.
inline constexpr int kRowThreads = 128;

inline dim3 RowGrid(int64_t n, const ImageShape& image) {
  return dim3(static_cast<unsigned>(n * image.height),
              static_cast<unsigned>(CeilDiv(image.width * image.channels, kRowThreads)));
}

struct Cell {
  __device__ explicit Cell(const ImageShape& image)
      : n(blockIdx.x / static_cast<unsigned>(image.height)),
        y(static_cast<int>(blockIdx.x % static_cast<unsigned>(image.height))) {
    const unsigned column = blockIdx.y * kRowThreads + threadIdx.x;
    const auto channels = static_cast<unsigned>(image.channels);
    inside = column < static_cast<unsigned>(image.width) * channels;
    x = static_cast<int>(column / channels);
    channel = static_cast<int>(column % channels);
    index = static_cast<int64_t>(blockIdx.x) * image.width * image.channels + column;
  }
  int64_t n;
  int y, x, channel;
  bool inside;
  int64_t index;  // of the value in the batch
};

}  // namespace lockstep::trainer::cuda
