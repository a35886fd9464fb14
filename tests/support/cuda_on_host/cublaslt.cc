#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "tests/support/cuda_on_host/gemm.h"
#include "tests/support/cuda_on_host/runtime.h"

// The part of cuBLASLt that the trainer uses. What it refuses is what NVIDIA's documentation does not list
// (cuBLAS, "cublasLtMatmul()", the table of supported types, and the comments of cublasLt.h, both of CUDA
// 13.0), and on top of that what the trainer is not to do: another problem's algorithm, a bias or matrix less
// aligned than was said when the algorithm was chosen.
namespace {

using lockstep::cuda_on_host::CurrentDevice;
using lockstep::cuda_on_host::Enqueue;
using lockstep::cuda_on_host::Fault;
using lockstep::cuda_on_host::Gemm;
using lockstep::cuda_on_host::GemmMatrix;
using lockstep::cuda_on_host::GemmOptions;
using lockstep::cuda_on_host::GemmType;
using lockstep::cuda_on_host::Reachable;

struct Handle {
  int device = 0;
};

struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool relu() const { return (epilogue & CUBLASLT_EPILOGUE_RELU) != 0; }
};

struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;

  bool operator==(const Layout&) const = default;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

// What an algorithm was chosen for; kept in cublasLtMatmulAlgo_t.
struct Algorithm {
  uint64_t problem;  // a hash
  uint64_t workspace;
  uint32_t alignments[4];  // of a, b, c, d that it relies on
  uint32_t bias_alignment;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

const Description* Of(cublasLtMatmulDesc_t description) {
  return reinterpret_cast<const Description*>(description);
}
const Layout* Of(cublasLtMatrixLayout_t layout) { return reinterpret_cast<const Layout*>(layout); }

size_t BytesOf(cudaDataType_t type) { return type == CUDA_R_16BF ? 2 : 4; }

struct Problem {
  const Description& description;
  const Layout& a;
  const Layout& b;
  const Layout& c;
  const Layout& d;

  uint64_t Hash() const {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    const auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u; };
    add(description.compute);
    add(description.transpose_a);
    add(description.transpose_b);
    add(description.epilogue);
    for (const Layout* layout : {&a, &b, &c, &d}) {
      add(layout->type);
      add(layout->rows);
      add(layout->columns);
      add(layout->leading);
    }
    return hash;
  }

  // Shapes that belong together.
  bool Valid() const {
    for (const Layout* layout : {&a, &b, &c, &d}) {
      if (layout->rows <= 0 || layout->columns <= 0 || layout->leading < layout->rows) return false;
    }
    const bool ta = description.transpose_a != CUBLAS_OP_N, tb = description.transpose_b != CUBLAS_OP_N;
    const int64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
    const int64_t k_of_b = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
    return k == k_of_b && d.rows == m && d.columns == n && c == d;
  }

  // "When A, B, C, and D are regular column- or row-major matrices", of the rows with scale type CUDA_R_32F
  // those for float32 and bfloat16. The bias is of D's type.
  bool Supported() const {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, CurrentDevice()) != cudaSuccess) {
      return false;
    }
    constexpr int kAmpere = 8;
    const bool wide = a.type == CUDA_R_32F && b.type == CUDA_R_32F && d.type == CUDA_R_32F;
    const bool narrow = a.type == CUDA_R_16BF && b.type == CUDA_R_16BF &&
                        (d.type == CUDA_R_16BF || d.type == CUDA_R_32F) && major >= kAmpere;
    switch (description.compute) {
      case CUBLAS_COMPUTE_32F:
        if (!wide && !narrow) return false;
        break;
      case CUBLAS_COMPUTE_32F_FAST_TF32:
        if (!wide || major < kAmpere) return false;
        break;
      default:
        return false;
    }
    switch (description.epilogue) {
      case CUBLASLT_EPILOGUE_DEFAULT:
      case CUBLASLT_EPILOGUE_RELU:
      case CUBLASLT_EPILOGUE_BIAS:
      case CUBLASLT_EPILOGUE_RELU_BIAS:
        return description.scale == CUDA_R_32F;
      default:
        return false;
    }
  }
};

uint32_t AlignmentOf(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

// Algorithms load 16 bytes at a time where columns and pointers allow it, else less.
uint32_t AlignmentUsed(const Layout& layout, uint32_t promised) {
  constexpr size_t kWidest = 16;
  size_t bytes = kWidest;
  while (bytes > BytesOf(layout.type) &&
         (static_cast<size_t>(layout.leading) * BytesOf(layout.type) % bytes != 0 || promised % bytes != 0)) {
    bytes /= 2;
  }
  return static_cast<uint32_t>(bytes);
}

GemmMatrix MatrixOf(const Layout& layout, const void* data, bool transpose) {
  return {.data = data,
          .type = layout.type == CUDA_R_16BF ? GemmType::kBFloat16 : GemmType::kFloat32,
          .rows = layout.rows,
          .columns = layout.columns,
          .leading = layout.leading,
          .transpose = transpose};
}

// On the stream's thread. Its workspace is nobody else's meanwhile, so that it may be filled with nonsense.
void Execute(const GemmOptions& options, const void* c, void* workspace, size_t workspace_bytes) {
  const auto bias_bytes = static_cast<size_t>(options.d.rows) * options.d.element_bytes();
  const bool reachable = Reachable(options.a.data, options.a.bytes()) &&
                         Reachable(options.b.data, options.b.bytes()) &&
                         Reachable(options.d.data, options.d.bytes()) && Reachable(c, options.d.bytes()) &&
                         (options.bias == nullptr || Reachable(options.bias, bias_bytes)) &&
                         (workspace_bytes == 0 || Reachable(workspace, workspace_bytes));
  if (!reachable)
    return Fault(cudaErrorIllegalAddress, "cublasLtMatmul: memory that the device cannot reach");
  if (workspace_bytes > 0) std::memset(workspace, 0xa5, workspace_bytes);
  Gemm(options);
}

template <typename T>
cublasStatus_t Read(T* to, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque, typename T>
cublasStatus_t Create(Opaque* handle, const T& value) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = reinterpret_cast<Opaque>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Opaque>
cublasStatus_t Destroy(Opaque handle) {
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return Create(handle, Handle{CurrentDevice()}); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Destroy<Handle>(handle); }

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return Create(description, Description{.compute = compute, .scale = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return Destroy<Description>(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& to = *reinterpret_cast<Description*>(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Read(&to.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Read(&to.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Read(&to.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Read(&to.bias, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  return Create(layout, Layout{.type = type,
                               .rows = static_cast<int64_t>(rows),
                               .columns = static_cast<int64_t>(columns),
                               .leading = leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return Destroy<Layout>(layout); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return Create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  auto& to = *reinterpret_cast<Preference*>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Read(&to.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Read(&to.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Read(&to.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  if (found != nullptr) *found = 0;
  for (const void* argument :
       {static_cast<const void*>(handle), static_cast<const void*>(description), static_cast<const void*>(a),
        static_cast<const void*>(b), static_cast<const void*>(c), static_cast<const void*>(d),
        static_cast<const void*>(preference), static_cast<const void*>(results),
        static_cast<const void*>(found)}) {
    if (argument == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Problem problem{*Of(description), *Of(a), *Of(b), *Of(c), *Of(d)};
  if (wanted < 1 || !problem.Valid()) return CUBLAS_STATUS_INVALID_VALUE;
  if (!problem.Supported()) return CUBLAS_STATUS_NOT_SUPPORTED;

  const auto& preferred = *reinterpret_cast<const Preference*>(preference);
  constexpr uint64_t kWorkspace = 64 << 10;
  Algorithm algorithm{.problem = problem.Hash(), .workspace = std::min(kWorkspace, preferred.workspace)};
  const Layout* layouts[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i) algorithm.alignments[i] = AlignmentUsed(*layouts[i], preferred.alignments[i]);
  constexpr uint32_t kWidest = 16;
  algorithm.bias_alignment = std::min(kWidest, AlignmentOf(problem.description.bias));
  results[0] = {};
  std::memcpy(results[0].algo.data, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* chosen, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr || chosen == nullptr || description == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (reinterpret_cast<const Handle*>(handle)->device != CurrentDevice()) return CUBLAS_STATUS_INVALID_VALUE;
  const Problem problem{*Of(description), *Of(a_layout), *Of(b_layout), *Of(c_layout), *Of(d_layout)};
  Algorithm algorithm;
  std::memcpy(&algorithm, chosen->data, sizeof algorithm);
  float factor = 0, of_c = 1;
  std::memcpy(&factor, alpha, sizeof factor);
  std::memcpy(&of_c, beta, sizeof of_c);
  if (algorithm.problem != problem.Hash() || workspace_bytes < algorithm.workspace) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (of_c != 0) return CUBLAS_STATUS_NOT_SUPPORTED;  // the trainer adds to nothing

  const Description& described = problem.description;
  const void* bias = described.has_bias() ? described.bias : nullptr;
  if (described.has_bias() && bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const void* pointers[] = {a, b, c, d};
  bool aligned =
      AlignmentOf(workspace) >= 16 && (bias == nullptr || AlignmentOf(bias) >= algorithm.bias_alignment);
  for (int i = 0; i < 4; ++i) aligned = aligned && AlignmentOf(pointers[i]) >= algorithm.alignments[i];

  const GemmOptions options{.a = MatrixOf(problem.a, a, described.transpose_a != CUBLAS_OP_N),
                            .b = MatrixOf(problem.b, b, described.transpose_b != CUBLAS_OP_N),
                            .d = MatrixOf(problem.d, d, false),
                            .alpha = factor,
                            .tf32 = described.compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                            .bias = bias,
                            .relu = described.relu()};
  const cudaError_t error = Enqueue(stream, "cublasLtMatmul", [=] {
    if (!aligned) return Fault(cudaErrorMisalignedAddress, "cublasLtMatmul: less aligned than was said");
    Execute(options, c, workspace, algorithm.workspace);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
