#include "tests/support/cuda_on_host/runtime.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/cuda_on_host/controls.h"

extern "C" const lockstep::cuda_on_host::Controls lockstep_cuda_on_host_controls;

namespace lockstep::cuda_on_host {
namespace {

class RuntimeOnHostTest : public testing::Test {
 protected:
  void SetUp() override {
    for (cudaStream_t* stream : {&one_, &two_}) {
      ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
    }
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&back_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    lockstep_cuda_on_host_controls.hold(false);
    cudaDeviceSynchronize();
    cudaStreamDestroy(one_);
    cudaStreamDestroy(two_);
    cudaEventDestroy(event_);
    cudaEventDestroy(back_);
    cudaGetLastError();
  }
  void Append(cudaStream_t stream, int what) {
    ASSERT_EQ(Enqueue(stream, "append", [this, what] { seen_.push_back(what); }), cudaSuccess);
  }

  cudaStream_t one_ = nullptr;
  cudaStream_t two_ = nullptr;
  cudaEvent_t event_ = nullptr;
  cudaEvent_t back_ = nullptr;
  std::vector<int> seen_;
};

TEST_F(RuntimeOnHostTest, NewMemoryHoldsNonsense) {
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 4000), cudaSuccess);
  std::vector<float> values(1000);
  ASSERT_EQ(cudaMemcpy(values.data(), pointer, 4000, cudaMemcpyDeviceToHost), cudaSuccess);
  for (const float value : values) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaErrorInvalidValue);
}

TEST_F(RuntimeOnHostTest, CopiesKnowWhereTheirEndsAre) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 100), cudaSuccess);
  char host[200] = {};
  EXPECT_EQ(cudaMemcpy(device, host, 100, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemcpy(device, host, 101, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, static_cast<char*>(device) + 50, 60, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 10, one_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device, host, 100, cudaMemcpyDefault), cudaSuccess);
  cudaFree(device);
}

TEST_F(RuntimeOnHostTest, PageableSourcesMayChangeAfterTheCallAndPinnedOnesMayNot) {
  void* device = nullptr;
  void* pinned = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 2), cudaSuccess);
  ASSERT_EQ(cudaMallocHost(&pinned, 1), cudaSuccess);
  lockstep_cuda_on_host_controls.hold(true);
  char pageable = 1;
  *static_cast<char*>(pinned) = 1;
  ASSERT_EQ(cudaMemcpyAsync(device, &pageable, 1, cudaMemcpyHostToDevice, one_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(static_cast<char*>(device) + 1, pinned, 1, cudaMemcpyHostToDevice, one_),
            cudaSuccess);
  pageable = 2;
  *static_cast<char*>(pinned) = 2;
  lockstep_cuda_on_host_controls.hold(false);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  char seen[2];
  ASSERT_EQ(cudaMemcpy(seen, device, 2, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[1], 2);
  cudaFree(device);
  cudaFreeHost(pinned);
}

TEST_F(RuntimeOnHostTest, StreamsWaitForEventsAndNotForOneAnother) {
  lockstep_cuda_on_host_controls.hold(true);
  std::atomic<bool> go = false;
  ASSERT_EQ(Enqueue(one_, "wait", [&] { go.wait(false); }), cudaSuccess);
  Append(one_, 1);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  std::atomic<bool> other_ran = false;
  ASSERT_EQ(Enqueue(two_, "free",
                    [&] {
                      other_ran = true;
                      other_ran.notify_all();
                    }),
            cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  Append(two_, 2);
  lockstep_cuda_on_host_controls.hold(false);
  other_ran.wait(false);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(two_), cudaErrorNotReady);
  cudaGetLastError();
  go = true;
  go.notify_all();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(seen_, (std::vector<int>{1, 2}));
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
}

// one: 1, 2 … two: 3, 4, joined at the end. Without an edge between them the later one comes first.
TEST_F(RuntimeOnHostTest, GraphsRunInTheLeastConvenientOrder) {
  ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Append(one_, 0);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  Append(one_, 1);
  Append(one_, 2);
  Append(two_, 3);
  Append(two_, 4);
  ASSERT_EQ(cudaEventRecord(back_, two_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(one_, back_, 0), cudaSuccess);
  Append(one_, 5);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  EXPECT_TRUE(seen_.empty());
  ASSERT_EQ(cudaGraphLaunch(exec, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_EQ(seen_, (std::vector<int>{0, 3, 4, 1, 2, 5}));
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_F(RuntimeOnHostTest, CapturesRefuseWhatCannotBeRecorded) {
  void* pointer = nullptr;
  size_t bytes = 0;
  const struct {
    const char* name;
    std::function<cudaError_t()> call;
    cudaError_t error;
  } cases[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&pointer, 1); }, cudaErrorStreamCaptureUnsupported},
      {"cudaMallocAsync", [&] { return cudaMallocAsync(&pointer, 1, one_); },
       cudaErrorStreamCaptureUnsupported},
      {"cudaMallocHost", [&] { return cudaMallocHost(&pointer, 1); }, cudaErrorStreamCaptureUnsupported},
      {"cudaMemcpy", [&] { return cudaMemcpy(&bytes, &bytes, 1, cudaMemcpyHostToHost); },
       cudaErrorStreamCaptureUnsupported},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(one_); },
       cudaErrorStreamCaptureUnsupported},
      {"cudaStreamQuery", [&] { return cudaStreamQuery(one_); }, cudaErrorStreamCaptureUnsupported},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
      {"an event of before", [&] { return cudaStreamWaitEvent(one_, event_, 0); },
       cudaErrorStreamCaptureIsolation},
      {"asking a recorded event",
       [&] {
         cudaEventRecord(back_, one_);
         return cudaEventQuery(back_);
       },
       cudaErrorCapturedEvent},
  };
  ASSERT_EQ(cudaEventRecord(event_, two_), cudaSuccess);
  for (const auto& c : cases) {
    ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(c.call(), c.error) << c.name;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated) << c.name;
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  }
}

TEST_F(RuntimeOnHostTest, AStreamThatDoesNotComeBackSpoilsTheCapture) {
  ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaSuccess);
  Append(two_, 1);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(two_, &graph), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureUnjoined);
}

TEST_F(RuntimeOnHostTest, PoolsKeepWhatIsFreedUpToTheirThreshold) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  const auto reserved = [&] {
    uint64_t bytes = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes), cudaSuccess);
    return bytes;
  };
  const auto use_once = [&] {
    void* pointer = nullptr;
    EXPECT_EQ(cudaMallocFromPoolAsync(&pointer, 10 << 20, pool, one_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(pointer, one_), cudaSuccess);
    EXPECT_EQ(cudaFreeAsync(pointer, one_), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  };
  use_once();
  EXPECT_EQ(reserved(), 0u);  // the threshold is 0 at first
  uint64_t never = UINT64_MAX;
  ASSERT_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &never), cudaSuccess);
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  use_once();
  EXPECT_EQ(reserved(), uint64_t{10} << 20);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(before - after, size_t{10} << 20);
  ASSERT_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  EXPECT_EQ(reserved(), 0u);
  ASSERT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(RuntimeOnHostTest, TheDeviceIsAsLargeAsItSays) {
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, free + 1), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&pointer, free), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMallocAsync(&more, 1, one_), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(RuntimeOnHostTest, MemoryOfAPoolIsThereWhenItsStreamComesToIt) {
  lockstep_cuda_on_host_controls.hold(true);
  void* pointer = nullptr;
  ASSERT_EQ(cudaMallocAsync(&pointer, 100, one_), cudaSuccess);
  EXPECT_FALSE(Reachable(pointer, 100));
  lockstep_cuda_on_host_controls.hold(false);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_TRUE(Reachable(pointer, 100));
  EXPECT_FALSE(Reachable(pointer, 101));
  ASSERT_EQ(cudaFreeAsync(pointer, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_FALSE(Reachable(pointer, 1));
}

}  // namespace
}  // namespace lockstep::cuda_on_host
