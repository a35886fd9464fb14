#include "trainer/backend/cuda/conv2d_kernels.h"
#include "trainer/backend/cuda/elementwise.cuh"
#include "trainer/backend/cuda/image_rows.cuh"

namespace lockstep::trainer::cuda {
namespace {

__global__ void __launch_bounds__(kElementThreads)
    AddBiasKernel(int64_t count, int64_t channels, const float* bias, bool relu, float* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kElementThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kElementThreads + threadIdx.x; i < count; i += stride) {
    const float value = bias != nullptr ? y[i] + bias[i % channels] : y[i];
    y[i] = relu && !(value > 0) ? 0.0f : value;
  }
}

__global__ void __launch_bounds__(kRowThreads) PutKernel(Frame frame, const float* images, float* framed) {
  const Cell cell(frame.framed);
  if (!cell.inside) return;
  const ImageShape& image = frame.image;
  const int64_t y = cell.y - frame.top, x = cell.x - frame.left;
  const bool over = y >= 0 && y < image.height && x >= 0 && x < image.width;
  framed[cell.index] =
      over ? images[((cell.n * image.height + y) * image.width + x) * image.channels + cell.channel] : 0.0f;
}

__global__ void __launch_bounds__(kRowThreads) TakeKernel(Frame frame, const float* framed, float* images) {
  const Cell cell(frame.image);
  if (!cell.inside) return;
  const ImageShape& from = frame.framed;
  const int64_t y = cell.y + frame.top, x = cell.x + frame.left;
  const bool over = y < from.height && x < from.width;
  images[cell.index] =
      over ? framed[((cell.n * from.height + y) * from.width + x) * from.channels + cell.channel] : 0.0f;
}

}  // namespace

void AddBias(int64_t pixels, int64_t channels, const float* bias, bool relu, float* y,
             const KernelContext& context) {
  const int64_t count = pixels * channels;
  LOCKSTEP_LAUNCH(AddBiasKernel, ElementBlocks(count, context), kElementThreads, 0, context.stream, count,
                  channels, bias, relu, y);
}

void PutIntoFrame(const Frame& frame, int64_t n, const float* images, float* framed,
                  const KernelContext& context) {
  LOCKSTEP_LAUNCH(PutKernel, RowGrid(n, frame.framed), kRowThreads, 0, context.stream, frame, images, framed);
}

void TakeFromFrame(const Frame& frame, int64_t n, const float* framed, float* images,
                   const KernelContext& context) {
  LOCKSTEP_LAUNCH(TakeKernel, RowGrid(n, frame.image), kRowThreads, 0, context.stream, frame, framed, images);
}

}  // namespace lockstep::trainer::cuda
