#pragma once

#include <optional>

#include "trainer/backend/device_backend.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::strategy {

// What of an update changes from step to step, in a device's memory.
class DeviceRates {
 public:
  explicit DeviceRates(DeviceBackend& device)
      : device_(device), memory_(device.allocator(), sizeof(StepRates)) {}

  const StepRates* data() const { return memory_.as<StepRates>(); }

  // Enqueues: those that are not there already.
  void Tell(const StepRates& rates) {
    const auto tell = [&](float StepRates::*one) {
      if (!told_ || (*told_).*one != rates.*one)
        device_.SetFloat(&(memory_.as<StepRates>()->*one), rates.*one);
    };
    tell(&StepRates::rate);
    tell(&StepRates::decay);
    tell(&StepRates::keep);
    told_ = rates;
  }

 private:
  DeviceBackend& device_;
  Buffer memory_;
  std::optional<StepRates> told_;  // what is there
};

}  // namespace lockstep::trainer::strategy
