#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "trainer/collectives/device_communicator.h"

// Sums over the memory of several ranks, for local/cuda_peer_communicator.h.
namespace lockstep::trainer::collectives::cuda {

inline constexpr int kMostPeers = 64;  // their pointers are arguments of a kernel, which may have 4 KiB

// What is read, by rank, and where every sum goes; a target may be one of the sources. The same element of
// each lies equally far from a multiple of 16 bytes.
template <typename T>
struct Across {
  const T* from[kMostPeers] = {};
  T* to[kMostPeers] = {};
  int ranks = 0;
  int targets = 0;
};

// Enqueues: to[t][i] = ((from[0][i] + from[1][i]) + from[2][i]) + … for every target t and begin <= i < end.
void SumInRankOrder(const Across<float>& across, size_t begin, size_t end, cudaStream_t stream);
// The same for one report each.
void SumInRankOrder(const Across<DeviceReport>& across, cudaStream_t stream);

}  // namespace lockstep::trainer::collectives::cuda
