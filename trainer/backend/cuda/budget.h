#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trainer/backend/cuda_plugin.h"

namespace lockstep::trainer::cuda {

std::string_view PolicyName(MemoryPolicy policy);  // as a manifest has it: "Growth"

// What a policy allows on a device with `total` bytes of memory, `free` of them free now; 0: no limit. For
// Preallocate, what is to be taken at once. Throws Unsupported where the options contradict the policy.
size_t LimitOf(const DeviceOptions& options, size_t total, size_t free);

// Counts what is handed out and refuses more than the limit. Not safe for threads.
class Budget {
 public:
  // `device` for messages: "GPU 0 (NVIDIA H200)".
  Budget(std::string device, MemoryPolicy policy, size_t limit)
      : device_(std::move(device)), policy_(policy), limit_(limit) {}

  // Throws OutOfMemory, which says what was asked for, what is in use, what is allowed, and where.
  void Take(size_t bytes);
  void Give(size_t bytes) { used_ -= bytes; }
  // The same error, for whoever found no memory within the limit; `found` says what there was.
  [[noreturn]] void Refuse(size_t bytes, const std::string& found) const;

  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  size_t limit() const { return limit_; }

 private:
  std::string device_;
  MemoryPolicy policy_;
  size_t limit_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace lockstep::trainer::cuda
