#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "trainer/backend/cuda/launch.h"

namespace lockstep::cuda_on_host {
namespace {

// Device memory for one test, seen by the host at the end.
template <typename T>
class Array {
 public:
  explicit Array(size_t count) : count_(count) {
    cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T));
  }
  ~Array() { cudaFree(data_); }
  T* data() const { return data_; }
  void Set(const std::vector<T>& values) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<T> Get() const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

__global__ void Place(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

TEST(KernelsOnHostTest, EveryThreadOfEveryBlockRunsOnce) {
  const dim3 blocks(3, 2, 2);
  const dim3 threads(5, 3, 2);
  Array<unsigned> out(12 * 30);
  LOCKSTEP_LAUNCH(Place, blocks, threads, 0, nullptr, out.data());
  const std::vector<unsigned> seen = out.Get();
  for (unsigned block = 0; block < 12; ++block) {
    for (unsigned thread = 0; thread < 30; ++thread)
      EXPECT_EQ(seen[block * 30 + thread], block * 1000 + thread);
  }
}

// Each round every thread reads what its neighbours wrote in the one before.
__global__ void Rotate(int* data, int rounds) {
  __shared__ int shared[256];
  const unsigned i = threadIdx.x;
  shared[i] = data[i];
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    const int next = shared[(i + 1) % blockDim.x];
    __syncthreads();
    shared[i] = next;
    __syncthreads();
  }
  data[i] = shared[i];
}

TEST(KernelsOnHostTest, SyncthreadsKeepsABlockInStep) {
  std::vector<int> values(256);
  std::iota(values.begin(), values.end(), 0);
  Array<int> data(256);
  data.Set(values);
  LOCKSTEP_LAUNCH(Rotate, 1, 256, 0, nullptr, data.data(), 100);
  const std::vector<int> seen = data.Get();
  for (int i = 0; i < 256; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], (i + 100) % 256);
}

// Threads that return early do not hold the others up.
__global__ void HalfReturns(int* out) {
  if (threadIdx.x % 2 == 1) return;
  __syncthreads();
  const int all = __syncthreads_count(threadIdx.x < 32);
  out[threadIdx.x / 2] = all;
}

TEST(KernelsOnHostTest, BarriersWaitForThoseThatAreThere) {
  Array<int> out(50);
  LOCKSTEP_LAUNCH(HalfReturns, 1, 100, 0, nullptr, out.data());
  for (const int all : out.Get()) EXPECT_EQ(all, 16);
}

__global__ void Shuffles(int* xor_sum, int* down, int* up, int* from_five, unsigned* ballot) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = lane;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  xor_sum[i] = sum;
  down[i] = __shfl_down_sync(0xffffffffu, lane, 3);
  up[i] = __shfl_up_sync(0xffffffffu, lane, 3);
  from_five[i] = __shfl_sync(0xffffffffu, lane, 5, 8);
  ballot[i] = __ballot_sync(0xffffffffu, lane % 3 == 0);
}

TEST(KernelsOnHostTest, ShufflesAreThoseOfAWarp) {
  constexpr size_t kThreads = 2 * 96;
  Array<int> xor_sum(kThreads), down(kThreads), up(kThreads), from_five(kThreads);
  Array<unsigned> ballot(kThreads);
  LOCKSTEP_LAUNCH(Shuffles, 2, 96, 0, nullptr, xor_sum.data(), down.data(), up.data(), from_five.data(),
                  ballot.data());
  for (size_t i = 0; i < kThreads; ++i) {
    const int lane = static_cast<int>(i) % 32;
    EXPECT_EQ(xor_sum.Get()[i], 31 * 16);
    EXPECT_EQ(down.Get()[i], lane + 3 < 32 ? lane + 3 : lane);
    EXPECT_EQ(up.Get()[i], lane >= 3 ? lane - 3 : lane);
    EXPECT_EQ(from_five.Get()[i], lane / 8 * 8 + 5);
    EXPECT_EQ(ballot.Get()[i], 0x49249249u);
  }
}

// Two halves of a warp, each with its own mask, a different number of times.
__global__ void Halves(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  int sum = 1;
  const int rounds = lane < 16 ? 4 : 2;
  for (int round = 0; round < rounds; ++round) sum += __shfl_xor_sync(mask, sum, 1 << round);
  out[lane] = sum;
}

TEST(KernelsOnHostTest, PartsOfAWarpGoTheirOwnWays) {
  Array<int> out(32);
  LOCKSTEP_LAUNCH(Halves, 1, 32, 0, nullptr, out.data());
  const std::vector<int> seen = out.Get();
  for (size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(seen[lane], lane < 16 ? 16 : 4);
}

__global__ void Count(unsigned* counter, unsigned* of_block, float* sum) {
  LOCKSTEP_DYNAMIC_SHARED(unsigned, shared);
  if (threadIdx.x == 0) shared[0] = 0;
  __syncthreads();
  atomicAdd(&shared[0], 1u);
  atomicAdd(sum, 0.5F);
  __syncthreads();
  if (threadIdx.x == 0) {
    of_block[blockIdx.x] = shared[0];
    atomicAdd(counter, 1u);
  }
}

TEST(KernelsOnHostTest, AtomicsAndDynamicSharedMemory) {
  Array<unsigned> counter(1), of_block(10);
  Array<float> sum(1);
  counter.Set({0});
  sum.Set({0});
  LOCKSTEP_LAUNCH(Count, 10, 64, sizeof(unsigned), nullptr, counter.data(), of_block.data(), sum.data());
  EXPECT_EQ(counter.Get()[0], 10u);
  EXPECT_EQ(sum.Get()[0], 320);
  for (const unsigned threads : of_block.Get()) EXPECT_EQ(threads, 64u);
}

__global__ void Write(float* data, float value) { data[blockIdx.x] = value; }

TEST(KernelsOnHostTest, ImpossibleLaunchesAreRefused) {
  Array<float> data(1);
  Launch("Write", Write, dim3(1), dim3(1025), 0, nullptr, data.data(), 1.0F);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  Launch("Write", Write, dim3(0), dim3(1), 0, nullptr, data.data(), 1.0F);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  Launch("Write", Write, dim3(1), dim3(1), 100'000, nullptr, data.data(), 1.0F);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  Launch("Write", Write, dim3(1), dim3(1), 0, nullptr, data.data(), 1.0F);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// A broken device stays so: each in a process of its own.
class BrokenOnHostTest : public testing::Test {
 protected:
  BrokenOnHostTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  [[noreturn]] static void ExitWith(cudaError_t expected) {
    const bool first = cudaDeviceSynchronize() == expected;
    void* pointer = nullptr;
    const bool again = cudaMalloc(&pointer, 1) == expected && cudaGetLastError() == expected;
    std::exit(first && again ? 0 : 1);
  }
};

TEST_F(BrokenOnHostTest, AKernelThatIsGivenTheHostsMemory) {
  EXPECT_EXIT(
      {
        float here = 0;
        Launch("Write", Write, dim3(1), dim3(1), 0, nullptr, &here, 1.0F);
        ExitWith(cudaErrorIllegalAddress);
      },
      testing::ExitedWithCode(0), "kernel Write: pointer argument 0");
}

TEST_F(BrokenOnHostTest, AKernelThatIsGivenFreedMemory) {
  EXPECT_EXIT(
      {
        void* pointer = nullptr;
        cudaMalloc(&pointer, 100);
        cudaFree(pointer);
        Launch("Write", Write, dim3(1), dim3(1), 0, nullptr, static_cast<float*>(pointer), 1.0F);
        ExitWith(cudaErrorIllegalAddress);
      },
      testing::ExitedWithCode(0), "or no longer");
}

TEST_F(BrokenOnHostTest, AKernelThatWritesBehindItsMemory) {
  EXPECT_DEATH(
      {
        void* pointer = nullptr;
        cudaMalloc(&pointer, 100);
        Launch("Write", Write, dim3(100), dim3(1), 0, nullptr, static_cast<float*>(pointer), 1.0F);
        cudaDeviceSynchronize();
      },
      "");
}

__global__ void WaitsAlone(int* out) {
  if (threadIdx.x == 0) {
    __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __syncthreads();
  }
  *out = 1;
}

TEST_F(BrokenOnHostTest, ThreadsThatWaitForOnesThatNeverCome) {
  EXPECT_DEATH(
      {
        void* pointer = nullptr;
        cudaMalloc(&pointer, 100);
        Launch("WaitsAlone", WaitsAlone, dim3(1), dim3(32), 0, nullptr, static_cast<int*>(pointer));
        cudaDeviceSynchronize();
      },
      "kernel WaitsAlone: block \\(0,0,0\\) is stuck");
}

}  // namespace
}  // namespace lockstep::cuda_on_host
