#include "tests/support/cuda_on_host/gemm.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "trainer/tensor/bfloat16.h"

namespace lockstep::cuda_on_host {
namespace {

using trainer::BFloat16;

float Load(const GemmMatrix& matrix, const void* data, int64_t index) {
  return matrix.type == GemmType::kFloat32 ? static_cast<const float*>(data)[index]
                                           : ToFloat(static_cast<const BFloat16*>(data)[index]);
}

// An element of op(matrix).
float At(const GemmMatrix& matrix, int64_t row, int64_t column) {
  return matrix.transpose ? Load(matrix, matrix.data, row * matrix.leading + column)
                          : Load(matrix, matrix.data, column * matrix.leading + row);
}

// The product is made of tiles whose sums stay in registers.
constexpr int kRows = 8;
constexpr int kColumns = 4;

// op(matrix) [rows, depth] in float32, in stripes of kRows rows (the last filled up with zeros), each
// [depth, kRows].
std::vector<float> Stripes(const GemmMatrix& matrix, int64_t rows, int64_t depth, bool tf32) {
  std::vector<float> values(static_cast<size_t>((rows + kRows - 1) / kRows * kRows * depth));
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = 0; i < rows; ++i) {
      const float value = At(matrix, i, k);
      values[static_cast<size_t>((i / kRows * depth + k) * kRows + i % kRows)] = tf32 ? ToTf32(value) : value;
    }
  }
  return values;
}

// op(matrix) [depth, columns] in float32, in stripes of kColumns columns, each [depth, kColumns].
std::vector<float> ColumnStripes(const GemmMatrix& matrix, int64_t depth, int64_t columns, bool tf32) {
  std::vector<float> values(static_cast<size_t>((columns + kColumns - 1) / kColumns * kColumns * depth));
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t k = 0; k < depth; ++k) {
      const float value = At(matrix, k, j);
      values[static_cast<size_t>((j / kColumns * depth + k) * kColumns + j % kColumns)] =
          tf32 ? ToTf32(value) : value;
    }
  }
  return values;
}

struct Tile {
  float sums[kColumns][kRows] = {};
};

// (Of copies only: sanitizers have seen the matrices being read.)
[[gnu::no_sanitize("address", "undefined")]] Tile Multiply(int64_t depth, const float* __restrict a,
                                                           const float* __restrict b) {
  Tile tile;
  for (int64_t k = 0; k < depth; ++k, a += kRows, b += kColumns) {
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < kRows; ++i) tile.sums[j][i] += a[i] * b[j];
    }
  }
  return tile;
}

void Store(const GemmOptions& options, int64_t row, int64_t column, float sum) {
  float value = options.alpha * sum;
  if (options.bias != nullptr) value += Load(options.d, options.bias, row);
  if (options.relu) value = std::max(value, 0.0f);
  const int64_t to = column * options.d.leading + row;
  auto* data = const_cast<void*>(options.d.data);
  if (options.d.type == GemmType::kFloat32) {
    static_cast<float*>(data)[to] = value;
  } else {
    static_cast<BFloat16*>(data)[to] = trainer::ToBFloat16(value);
  }
}

}  // namespace

float ToTf32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}

void Gemm(const GemmOptions& options) {
  const int64_t rows = options.d.rows, columns = options.d.columns;
  const int64_t depth = options.a.transpose ? options.a.rows : options.a.columns;
  const std::vector<float> a = Stripes(options.a, rows, depth, options.tf32);
  const std::vector<float> b = ColumnStripes(options.b, depth, columns, options.tf32);
  for (int64_t column = 0; column < columns; column += kColumns) {
    for (int64_t row = 0; row < rows; row += kRows) {
      const Tile tile = Multiply(depth, a.data() + row * depth, b.data() + column * depth);
      for (int64_t j = 0; j < kColumns && column + j < columns; ++j) {
        for (int64_t i = 0; i < kRows && row + i < rows; ++i)
          Store(options, row + i, column + j, tile.sums[j][i]);
      }
    }
  }
}

}  // namespace lockstep::cuda_on_host
