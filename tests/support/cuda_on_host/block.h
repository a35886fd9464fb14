#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

// Runs the blocks of a kernel on the calling thread. The threads of a block are fibers: one runs until it
// waits for others of its block or warp, so that __syncthreads and warp shuffles mean what they mean on a
// device. Blocks, and threads in a block, run from the last to the first: CUDA promises no order.
namespace lockstep::cuda_on_host {

struct Grid {
  dim3 blocks;
  dim3 threads;           // of a block
  size_t dynamic_shared;  // bytes
};

// Ends the process, naming the kernel, where threads wait for ones that never come.
void RunGrid(const std::string& kernel, const Grid& grid, const std::function<void()>& thread_body);

// Of the thread that runs now; what the built-in variables are made from.
struct ThreadPlace {
  uint3 thread;
  uint3 block;
  dim3 block_size;
  dim3 grid_size;
  void* dynamic_shared;
};
const ThreadPlace& Here();

// __syncthreads; returns how many threads came with `vote`.
int WaitForBlock(bool vote);

inline constexpr int kWarpSize = 32;
// Waits for the lanes of `mask`, each of which brings 8 bytes.
struct WarpValues {
  uint64_t of_lane[kWarpSize];
  uint32_t came;  // lanes
};
const WarpValues& WaitForWarp(uint32_t mask, uint64_t value);
int LaneHere();

}  // namespace lockstep::cuda_on_host
