#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::cuda_on_host {

struct Device {
  std::string uuid;  // "GPU-…" or "MIG-…"
  int physical = 0;
  size_t memory = 0;
  int capability = 0;  // 90 for sm_90
};

// As the environment had it when the first call came:
//   CUDA_ON_HOST_DEVICES     how many there are (1); 0: CUDA finds none
//   CUDA_ON_HOST_UUIDS       theirs, separated by commas; else made up
//   CUDA_ON_HOST_MEMORY      bytes of each (2 GiB)
//   CUDA_ON_HOST_CAPABILITY  90
//   CUDA_ON_HOST_PEER_ACCESS 0: no GPU reaches another's memory
//   CUDA_VISIBLE_DEVICES           by index or UUID, with CUDA's rules: a bad entry hides it and all that
//   follow
const std::vector<Device>& Devices();

// Whether work on one physical GPU reaches the memory of another.
bool PeersReach(int physical, int other);

// Taken on each device before anything is allocated, as a context is.
inline constexpr size_t kContextBytes = size_t{16} << 20;

}  // namespace lockstep::cuda_on_host
