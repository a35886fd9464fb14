#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace lockstep {

// A device as TensorFlow names it.
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::string type;  // "CPU" | "GPU" | "TPU"
  int index = 0;

  // "GPU:1": type and index alone.
  std::string Short() const;
  // "/job:worker/replica:0/task:0/device:GPU:1", with the parts that are there.
  std::string Full() const;
};

// Reads "GPU:1", "gpu:1", "/gpu:1", "/device:GPU:1" and "/job:worker/replica:0/task:0/device:GPU:1"; a type
// alone ("/cpu") is index 0. Parts may come in any order, each at most once, as in TensorFlow's
// DeviceNameUtils. kInvalidArgument says what is wrong with the name and what one looks like.
Result<DeviceName> ParseDeviceName(std::string_view name);

}  // namespace lockstep
