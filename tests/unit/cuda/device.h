#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/cuda_on_host/controls.h"
#include "trainer/backend/cuda_plugin.h"
#include "trainer/backend/device_backend.h"

namespace lockstep::trainer {

// Tests of a device: on the stand-in, with two devices of 1 GiB; or, where LOCKSTEP_TEST_ON_GPU is defined,
// on the machine's GPUs, and skipped with the reason where it has none.
class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override;

  const CudaEntry& entry() const { return plugin_->entry(); }
  int devices() const { return devices_; }
  std::unique_ptr<DeviceBackend> Make(const DeviceOptions& options = {}) const {
    return entry().make_backend(options);
  }
  // What can be made to happen; null on a real GPU.
  const cuda_on_host::Controls* controls() const { return controls_; }

  static void Upload(DeviceBackend& device, const Buffer& to, const std::vector<float>& values) {
    device.Upload(to.data(), values.data(), values.size() * sizeof(float));
  }
  static std::vector<float> Download(DeviceBackend& device, const Buffer& from) {
    std::vector<float> values(from.bytes() / sizeof(float));
    device.Download(values.data(), from.data(), from.bytes());
    return values;
  }

 private:
  std::optional<CudaPlugin> plugin_;
  int devices_ = 0;
  const cuda_on_host::Controls* controls_ = nullptr;
};

// Streams stand still until it goes out of scope.
class Held {
 public:
  explicit Held(const cuda_on_host::Controls* controls) : controls_(controls) { controls_->hold(true); }
  ~Held() { controls_->hold(false); }

 private:
  const cuda_on_host::Controls* controls_;
};

}  // namespace lockstep::trainer
