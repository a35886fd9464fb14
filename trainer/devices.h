#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/layers/layer_config.h"

namespace lockstep::trainer {

// The devices that this process sees, by TensorFlow's names: "CPU:0", and "GPU:0" … in the order of
// CUDA_VISIBLE_DEVICES. A backend is made when its device is first asked for. One thread at a time.
class Devices {
 public:
  struct Options {
    int threads = 1;              // of the CPU
    DeviceOptions memory;         // of each GPU; the ordinal is not used
    bool soft_placement = false;  // what is not there, or has no kernel there, goes to the CPU
  };

  explicit Devices(const Options& options) : options_(options) {}

  // Any way of writing a device's name that common/device_name.h reads. A device that is not there, or of
  // another kind than CPU and GPU, is Unsupported, naming it and those that are; with soft placement it is
  // the CPU, and a warning says so.
  Backend& At(std::string_view name);
  // The device, if it has a kernel for `op` on elements of `type`; else Unsupported, naming the three; with
  // soft placement the CPU, and a warning says so, once.
  Backend& For(Op op, DataType type, std::string_view name);
  // The same for all operations of a layer, which stay together.
  Backend& For(const LayerConfig& layer, DataType type, std::string_view name);
  // "CPU:0", "GPU:0", "GPU:1".
  std::vector<std::string> Names();
  // How GPUs exchange gradients; null where there is no CUDA library.
  const collectives::CudaCommunicators* communicators();
  // "GPU:0"; of a backend that came from here.
  std::string NameOf(const Backend& backend) const;

 private:
  int GpuCount();
  Backend& FallBack(const std::string& why);

  Options options_;
  std::optional<CudaPlugin> plugin_;
  std::optional<int> gpus_;  // empty: not counted yet
  std::string no_gpu_;       // why there is none
  std::map<std::string, std::unique_ptr<Backend>> opened_;
  std::set<std::string> said_;  // why the CPU was used
};

}  // namespace lockstep::trainer
