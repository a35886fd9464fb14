#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <vector>

// The stand-in for cuBLASLt refuses what the real one would. Failures of a device last, so that tests of them
// run in a process of their own.
namespace {

struct Factor {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
};

struct Problem {
  Factor a{CUDA_R_32F, 8, 16, 8}, b{CUDA_R_32F, 16, 4, 16}, d{CUDA_R_32F, 8, 4, 8};
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  uint32_t alignment = 256;
};

Problem InTypes(cudaDataType_t inputs, cudaDataType_t output) {
  Problem problem;
  problem.a.type = problem.b.type = inputs;
  problem.d.type = output;
  return problem;
}

// A problem's descriptions, and the algorithm for it.
class Product {
 public:
  explicit Product(const Problem& problem) {
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&description_, problem.compute, CUDA_R_32F);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, problem.epilogue);
    SetBias(problem.bias);
    a_ = Layout(problem.a);
    b_ = Layout(problem.b);
    d_ = Layout(problem.d);
    cublasLtMatmulPreferenceCreate(&preference_);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      cublasLtMatmulPreferenceSetAttribute(preference_, operand, &problem.alignment,
                                           sizeof problem.alignment);
    }
  }
  ~Product() {
    for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void SetBias(const void* bias) { Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

  cublasStatus_t Choose() {
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, description_, a_, b_, d_, d_,
                                                                 preference_, 1, &result_, &found);
    EXPECT_EQ(found, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
  }
  cublasStatus_t Run(const void* a, const void* b, void* d, cudaStream_t stream,
                     const cublasLtMatmulAlgo_t* algorithm = nullptr, float beta = 0) {
    const float one = 1;
    return cublasLtMatmul(handle_, description_, &one, a, a_, b, b_, &beta, d, d_, d, d_,
                          algorithm != nullptr ? algorithm : &result_.algo, nullptr, 0, stream);
  }
  const cublasLtMatmulAlgo_t* algorithm() const { return &result_.algo; }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t what, T value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description_, what, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  static cublasLtMatrixLayout_t Layout(const Factor& factor) {
    cublasLtMatrixLayout_t layout = nullptr;
    cublasLtMatrixLayoutCreate(&layout, factor.type, factor.rows, factor.columns, factor.leading);
    return layout;
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasLtMatmulHeuristicResult_t result_{};
};

cublasStatus_t Choose(const Problem& problem) { return Product(problem).Choose(); }

TEST(CublasLtOnHostTest, TakesTheTypesThatNvidiaLists) {
  EXPECT_EQ(Choose(InTypes(CUDA_R_32F, CUDA_R_32F)), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Choose(InTypes(CUDA_R_16BF, CUDA_R_32F)), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Choose(InTypes(CUDA_R_16BF, CUDA_R_16BF)), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Choose(InTypes(CUDA_R_32F, CUDA_R_16BF)), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Choose(InTypes(CUDA_R_32I, CUDA_R_32I)), CUBLAS_STATUS_NOT_SUPPORTED);
  Problem mixed = InTypes(CUDA_R_32F, CUDA_R_32F);
  mixed.b.type = CUDA_R_16BF;
  EXPECT_EQ(Choose(mixed), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(CublasLtOnHostTest, Tf32IsForFloat32) {
  Problem wide = InTypes(CUDA_R_32F, CUDA_R_32F), narrow = InTypes(CUDA_R_16BF, CUDA_R_32F);
  wide.compute = narrow.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  EXPECT_EQ(Choose(wide), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(Choose(narrow), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(CublasLtOnHostTest, ShapesMustBelongTogether) {
  Problem depth, gap, output;
  depth.b.rows = depth.b.leading = 17;
  gap.a.leading = 7;
  output.d.columns = 5;
  for (const Problem& problem : {depth, gap, output}) EXPECT_EQ(Choose(problem), CUBLAS_STATUS_INVALID_VALUE);
  Problem padded;
  padded.a.leading = 12;
  EXPECT_EQ(Choose(padded), CUBLAS_STATUS_SUCCESS);
}

TEST(CublasLtOnHostTest, RefusesWhatTheTrainerHasNoUseFor) {
  Problem gelu;
  gelu.epilogue = CUBLASLT_EPILOGUE_GELU;
  EXPECT_EQ(Choose(gelu), CUBLAS_STATUS_NOT_SUPPORTED);

  Product product{Problem()};
  ASSERT_EQ(product.Choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.Run(nullptr, nullptr, nullptr, nullptr, nullptr, 1), CUBLAS_STATUS_NOT_SUPPORTED);
  Problem other;
  other.b.columns = other.d.columns = 5;
  Product larger(other);
  ASSERT_EQ(larger.Choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.Run(nullptr, nullptr, nullptr, nullptr, larger.algorithm()), CUBLAS_STATUS_INVALID_VALUE);
}

// What a device finds out when it runs: the error that the stream then has.
class CublasLtOnHostDeathTest : public testing::Test {
 protected:
  CublasLtOnHostDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  struct Pointers {
    std::optional<size_t> a_offset;  // none: memory of the host
    size_t bias_offset = 0;
    size_t promised_bias = 256;
  };
  static int ErrorOf(const Pointers& pointers) {
    cudaStream_t stream = nullptr;
    char* memory = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return -1;
    if (cudaMalloc(reinterpret_cast<void**>(&memory), 8192) != cudaSuccess) return -1;
    std::vector<float> host(1024);
    Problem problem;
    problem.epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    problem.bias = reinterpret_cast<const void*>(pointers.promised_bias);
    Product product(problem);
    if (product.Choose() != CUBLAS_STATUS_SUCCESS) return -1;
    product.SetBias(memory + 1024 + pointers.bias_offset);
    const void* a =
        pointers.a_offset ? static_cast<const void*>(memory + 2048 + *pointers.a_offset) : host.data();
    if (product.Run(a, memory + 4096, memory, stream) != CUBLAS_STATUS_SUCCESS) return -1;
    return cudaStreamSynchronize(stream);
  }
};

TEST_F(CublasLtOnHostDeathTest, BFloat16NeedsAmpere) {
  setenv("CUDA_ON_HOST_CAPABILITY", "75", 1);
  EXPECT_EXIT(std::exit(Choose(InTypes(CUDA_R_16BF, CUDA_R_32F)) == CUBLAS_STATUS_NOT_SUPPORTED ? 0 : 1),
              testing::ExitedWithCode(0), "");
  unsetenv("CUDA_ON_HOST_CAPABILITY");
}

TEST_F(CublasLtOnHostDeathTest, MemoryOfTheHostIsOutOfReach) {
  EXPECT_EXIT(std::exit(ErrorOf({}) == cudaErrorIllegalAddress ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST_F(CublasLtOnHostDeathTest, WhatIsLessAlignedThanWasSaidFaults) {
  EXPECT_EXIT(std::exit(ErrorOf({.a_offset = 0}) == cudaSuccess ? 0 : 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::exit(ErrorOf({.a_offset = 4}) == cudaErrorMisalignedAddress ? 0 : 1),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::exit(ErrorOf({.a_offset = 0, .bias_offset = 4}) == cudaErrorMisalignedAddress ? 0 : 1),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      std::exit(ErrorOf({.a_offset = 0, .bias_offset = 4, .promised_bias = 4}) == cudaSuccess ? 0 : 1),
      testing::ExitedWithCode(0), "");
}

}  // namespace
