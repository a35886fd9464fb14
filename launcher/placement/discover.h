#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "launcher/placement/inventory.h"

// Reads what this machine has. Takes a few milliseconds at most without GPUs; asking the NVIDIA driver can
// take tens to hundreds, so ask only where a GPU could be used (see NeedsGpus in assign.h).
namespace lockstep::placement {

struct DiscoverOptions {
  std::filesystem::path root = "/";  // where proc/ and sys/ are: another folder for a recorded machine
  bool gpus = true;                  // false: NVIDIA's library is not even opened
  std::string nvml_library = "libnvidia-ml.so.1";  // opened at run time; a file name or a path
  // Where an MPS control daemon would listen; CUDA_MPS_PIPE_DIRECTORY of the launcher, where that is set.
  std::filesystem::path mps_pipe_directory = "/tmp/nvidia-mps";
};

// What the environment says of where things are: LOCKSTEP_NVML_LIBRARY and CUDA_MPS_PIPE_DIRECTORY.
DiscoverOptions DiscoverOptionsFrom(const std::map<std::string, std::string>& environment, bool gpus);

// Never fails: what cannot be read is left out, and a note says so. A machine without readable CPUs counts as
// one with one CPU. Not thread-safe against a change of the process's own affinity; otherwise callable from
// any thread.
Inventory Discover(const DiscoverOptions& options = {});

}  // namespace lockstep::placement
