#pragma once

#include <string_view>
#include <vector>

#include "launcher/placement/nvml_library.h"

namespace lockstep::health {

// What a GPU can compute at most, in floating-point operations a second at its highest clock.
struct Peak {
  std::string_view precision;  // "Float32", "TF32", "BFloat16"
  double flops = 0;
};

// Of the precisions whose rate is known: Float32 of every GPU, and tensor cores (dense, with sums in Float32)
// of compute capability 8.0 and 9.0. Nothing is guessed of others.
std::vector<Peak> PeaksOf(const placement::NvmlLibrary::Computing& computing);

}  // namespace lockstep::health
