#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda_on_host {

enum class GemmType { kFloat32, kBFloat16 };

// Column-major, as cuBLAS has it.
struct GemmMatrix {
  const void* data = nullptr;
  GemmType type = GemmType::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;  // elements from a column to the next
  bool transpose = false;

  size_t element_bytes() const { return type == GemmType::kFloat32 ? 4 : 2; }
  // That it spans: the last column ends with its last row.
  size_t bytes() const { return static_cast<size_t>((columns - 1) * leading + rows) * element_bytes(); }
};

struct GemmOptions {
  GemmMatrix a, b;
  GemmMatrix d;  // written; not transposed
  float alpha = 1;
  bool tf32 = false;           // inputs are rounded to TF32's 10 bits
  const void* bias = nullptr;  // [rows of d], of d's type; or null
  bool relu = false;
};

// d = relu(alpha · op(a) · op(b) + bias), summed in float32.
void Gemm(const GemmOptions& options);

// To the nearest of those with 10 bits of fraction, ties away from zero, as cvt.rna.tf32 has it.
float ToTf32(float value);

}  // namespace lockstep::cuda_on_host
