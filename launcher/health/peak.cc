#include "launcher/health/peak.h"

namespace lockstep::health {

namespace {

// A core does a multiplication and an addition each clock (CUDA C++ Programming Guide, "Arithmetic
// Instructions").
constexpr double kOperationsOfCore = 2;

// Of a multiprocessor's tensor cores each clock. From NVIDIA's white papers, where 108 multiprocessors at
// 1410 MHz make 312 TFLOPS of BFloat16 (A100 Tensor Core GPU Architecture, table 1) and 132 at 1830 MHz make
// 989 (H100 Tensor Core GPU Architecture, table 2); TF32 is half of it on both.
struct TensorCores {
  int major, minor;
  int cores;  // CUDA cores of a multiprocessor
  double bfloat16;
};
constexpr TensorCores kTensorCores[] = {{8, 0, 64, 2048}, {9, 0, 128, 4096}};

}  // namespace

std::vector<Peak> PeaksOf(const placement::NvmlLibrary::Computing& computing) {
  std::vector<Peak> peaks;
  if (computing.cuda_cores <= 0 || computing.max_clock <= 0) return peaks;
  peaks.push_back(
      {.precision = "Float32", .flops = computing.cuda_cores * kOperationsOfCore * computing.max_clock});
  for (const TensorCores& known : kTensorCores) {
    if (known.major != computing.major || known.minor != computing.minor) continue;
    const double multiprocessors = static_cast<double>(computing.cuda_cores) / known.cores;
    const double bfloat16 = multiprocessors * known.bfloat16 * computing.max_clock;
    peaks.push_back({.precision = "TF32", .flops = bfloat16 / 2});
    peaks.push_back({.precision = "BFloat16", .flops = bfloat16});
  }
  return peaks;
}

}  // namespace lockstep::health
