#include "trainer/backend/cuda/matmul.h"

#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

cudaDataType_t CudaType(DataType type) { return type == DataType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F; }

std::string Describe(const Matrix& matrix, bool transposed) {
  const int64_t rows = transposed ? matrix.columns : matrix.rows;
  const int64_t columns = transposed ? matrix.rows : matrix.columns;
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

struct PreferenceTraits {
  using Handle = cublasLtMatmulPreference_t;
  static void Destroy(Handle handle) noexcept {
    LOCKSTEP_CUDA_NOTHROW(cublasLtMatmulPreferenceDestroy(handle));
  }
};

template <typename T>
void Prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what, T value) {
  LOCKSTEP_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
}

}  // namespace

// cuBLASLt's matrices are column-major, so that a row-major matrix is its own transpose there: what is asked
// of it is dᵀ = op(b)ᵀ · op(a)ᵀ, with b as its first factor and a as its second, and the bias, which is along
// d's columns, lies along dᵀ's rows as cuBLASLt has it.
Matmul::Matmul(const MatmulOptions& options, const KernelContext& context)
    : context_(context),
      a_(MakeLayout(options.a)),
      b_(MakeLayout(options.b)),
      d_(MakeLayout({.rows = options.transpose_a ? options.a.columns : options.a.rows,
                     .columns = options.transpose_b ? options.b.rows : options.b.columns,
                     .type = options.output})),
      has_bias_(options.bias) {
  Describe(options);
  ChooseAlgorithm(options);
}

Matmul::Layout Matmul::MakeLayout(const Matrix& matrix) {
  Layout layout;
  LOCKSTEP_CUBLAS(cublasLtMatrixLayoutCreate(layout.Receive(), CudaType(matrix.type),
                                             static_cast<uint64_t>(matrix.columns),
                                             static_cast<uint64_t>(matrix.rows), matrix.columns));
  return layout;
}

void Matmul::Describe(const MatmulOptions& options) {
  constexpr int kFirstWithTf32 = 80;  // Ampere
  const bool tf32 =
      options.tf32 && options.a.type == DataType::kFloat32 && context_.capability >= kFirstWithTf32;
  const cublasComputeType_t compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  LOCKSTEP_CUBLAS(cublasLtMatmulDescCreate(description_.Receive(), compute, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    LOCKSTEP_CUBLAS(cublasLtMatmulDescSetAttribute(description_.get(), what, &value, sizeof value));
  };
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(options.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(options.transpose_a));
  const cublasLtEpilogue_t epilogue = options.relu && options.bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                      : options.relu               ? CUBLASLT_EPILOGUE_RELU
                                      : options.bias               ? CUBLASLT_EPILOGUE_BIAS
                                                                   : CUBLASLT_EPILOGUE_DEFAULT;
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  // The choice of an algorithm does not follow the pointer, but reads its alignment off it (cublasLt.h).
  if (options.bias) SetBias(reinterpret_cast<const void*>(options.alignment));
}

void Matmul::ChooseAlgorithm(const MatmulOptions& options) {
  UniqueHandle<PreferenceTraits> preference;
  LOCKSTEP_CUBLAS(cublasLtMatmulPreferenceCreate(preference.Receive()));
  const auto alignment = static_cast<uint32_t>(options.alignment);
  Prefer(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
         static_cast<uint64_t>(context_.workspace_bytes));
  for (const auto operand :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer(preference.get(), operand, alignment);
  }
  // Parts of a sum that is split are to be added in float32, and not in the output's type.
  Prefer(preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));

  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(context_.blas, description_.get(), b_.get(), a_.get(), d_.get(),
                                     d_.get(), preference.get(), 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) {
    throw Unsupported("product of " + cuda::Describe(options.a, options.transpose_a) + " and " +
                      cuda::Describe(options.b, options.transpose_b) + " in " +
                      std::string(DataTypeName(options.a.type)) + " on " + context_.device +
                      ": cuBLASLt has no algorithm for it");
  }
  LOCKSTEP_CUBLAS(status);
  LOCKSTEP_CUBLAS(result.state);
  algorithm_ = result.algo;
}

void Matmul::SetBias(const void* bias) {
  if (bias == bias_) return;
  LOCKSTEP_CUBLAS(cublasLtMatmulDescSetAttribute(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                 sizeof bias));
  bias_ = bias;
}

void Matmul::Run(const void* a, const void* b, void* d, const void* bias) {
  if (has_bias_) SetBias(bias);
  constexpr float kOne = 1, kZero = 0;
  LOCKSTEP_CUBLAS(cublasLtMatmul(context_.blas, description_.get(), &kOne, b, b_.get(), a, a_.get(), &kZero,
                                 d, d_.get(), d, d_.get(), &algorithm_, context_.workspace,
                                 context_.workspace_bytes, context_.stream));
}

}  // namespace lockstep::trainer::cuda
