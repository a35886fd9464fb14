#pragma once

#include <cstdint>
#include <string>

#include "trainer/backend/cuda/handles.h"
#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/tensor/dtype.h"

namespace lockstep::trainer::cuda {

// A row-major, dense matrix in device memory.
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  DataType type = DataType::kFloat32;
};

// d [m, n] = epilogue(op(a) · op(b)), accumulated in float32, op being the transposition where asked.
struct MatmulOptions {
  Matrix a;  // as it lies in memory, before the transposition; of b's type
  Matrix b;
  DataType output = DataType::kFloat32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;  // + bias [n], of the output's type
  bool relu = false;  // after the bias
  bool tf32 = false;  // float32 inputs may be rounded to TF32, where the device has it
  // In bytes, what all pointers of all calls are multiples of, the bias' too.
  size_t alignment = 64;
};

// A product for which cuBLASLt has chosen an algorithm: Run enqueues and allocates nothing.
class Matmul {
 public:
  // Not while recording. Throws Unsupported, naming the product and the device, if cuBLASLt has no algorithm.
  Matmul(const MatmulOptions& options, const KernelContext& context);

  void Run(const void* a, const void* b, void* d, const void* bias = nullptr);

 private:
  struct DescriptionTraits {
    using Handle = cublasLtMatmulDesc_t;
    static void Destroy(Handle handle) noexcept { LOCKSTEP_CUDA_NOTHROW(cublasLtMatmulDescDestroy(handle)); }
  };
  struct LayoutTraits {
    using Handle = cublasLtMatrixLayout_t;
    static void Destroy(Handle handle) noexcept {
      LOCKSTEP_CUDA_NOTHROW(cublasLtMatrixLayoutDestroy(handle));
    }
  };
  using Layout = UniqueHandle<LayoutTraits>;

  static Layout MakeLayout(const Matrix& matrix);
  void Describe(const MatmulOptions& options);
  void ChooseAlgorithm(const MatmulOptions& options);
  void SetBias(const void* bias);

  KernelContext context_;
  UniqueHandle<DescriptionTraits> description_;
  Layout a_, b_, d_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool has_bias_ = false;
  const void* bias_ = nullptr;
};

}  // namespace lockstep::trainer::cuda
