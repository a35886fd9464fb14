#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

// Memory and events of one process in another. A child that is forked may not use the parent's CUDA, so both
// sides are children, forked before either calls it.
namespace lockstep::cuda_on_host {
namespace {

struct Handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

#define REQUIRE(condition)                                                 \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(1);                                                          \
    }                                                                      \
  } while (false)

// Fills memory when told to, and records an event behind it.
void Owner(int to, int from) {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventInterprocess) == cudaErrorInvalidValue);  // with timing
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaMalloc(&memory, 1000) == cudaSuccess);
  Handles handles;
  REQUIRE(cudaIpcGetMemHandle(&handles.memory, static_cast<char*>(memory) + 256) == cudaErrorInvalidValue);
  REQUIRE(cudaIpcGetMemHandle(&handles.memory, memory) == cudaSuccess);
  REQUIRE(cudaIpcGetEventHandle(&handles.event, event) == cudaSuccess);
  void* pooled = nullptr;
  cudaIpcMemHandle_t none;
  REQUIRE(cudaMallocAsync(&pooled, 1000, stream) == cudaSuccess);
  REQUIRE(cudaIpcGetMemHandle(&none, pooled) == cudaErrorInvalidValue);
  void* mine = nullptr;
  REQUIRE(cudaIpcOpenMemHandle(&mine, handles.memory, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess);
  REQUIRE(cudaMemsetAsync(memory, 7, 1000, stream) == cudaSuccess);
  REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
  REQUIRE(::write(to, &handles, sizeof handles) == static_cast<ssize_t>(sizeof handles));
  char done = 0;
  REQUIRE(::read(from, &done, 1) == 1);
  REQUIRE(cudaMemset(memory, 0, 1) == cudaSuccess);
  ::_exit(0);
}

void Reader(int from, int to) {
  Handles handles;
  REQUIRE(::read(from, &handles, sizeof handles) == static_cast<ssize_t>(sizeof handles));
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* memory = nullptr;
  void* again = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaIpcOpenEventHandle(&event, handles.event) == cudaSuccess);
  REQUIRE(cudaIpcOpenMemHandle(&memory, handles.memory, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
  REQUIRE(cudaIpcOpenMemHandle(&again, handles.memory, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
  REQUIRE(again == memory);
  char seen[1000] = {};
  REQUIRE(cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(seen, memory, sizeof seen, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  for (const char c : seen) REQUIRE(c == 7);
  REQUIRE(cudaIpcCloseMemHandle(memory) == cudaSuccess);
  REQUIRE(cudaIpcCloseMemHandle(memory) == cudaSuccess);
  REQUIRE(cudaIpcCloseMemHandle(memory) == cudaErrorInvalidValue);
  REQUIRE(::write(to, "x", 1) == 1);
  ::_exit(0);
}

TEST(SharedMemoryOnHostTest, CrossesProcessesBehindAnEvent) {
  int there[2];
  int back[2];
  ASSERT_EQ(::pipe(there), 0);
  ASSERT_EQ(::pipe(back), 0);
  // (Each without the other's ends: who is left alone by the other reads the end, and does not wait.)
  const pid_t owner = ::fork();
  if (owner == 0) {
    for (const int fd : {there[0], back[1]}) ::close(fd);
    Owner(there[1], back[0]);
  }
  const pid_t reader = ::fork();
  if (reader == 0) {
    for (const int fd : {there[1], back[0]}) ::close(fd);
    Reader(there[0], back[1]);
  }
  for (const int fd : {there[0], there[1], back[0], back[1]}) ::close(fd);
  for (const pid_t child : {owner, reader}) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace lockstep::cuda_on_host
