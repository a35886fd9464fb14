#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace lockstep::contract {

// The job's key-value store as a process sees it: a whole rendezvous in four verbs. Keys live for one
// generation. Keys: at most 1 KiB; values: at most 1 MiB of any bytes.
//
// Every call returns by its deadline. kDeadlineExceeded names the missing keys and, where the store knows it,
// the ranks that have not come; kAborted: this generation is over; kUnavailable: the store is gone; after
// either of these two every further call fails the same way. Implementations may be called from several
// threads.
class Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Store() = default;

  virtual Status Set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  // Waits until the key is there.
  virtual Result<std::string> Get(std::string_view key, Deadline deadline) = 0;
  // Adds to a decimal counter (0 when absent) and returns the sum.
  virtual Result<int64_t> Add(std::string_view key, int64_t amount, Deadline deadline) = 0;
  // Waits until all keys are there.
  virtual Status Wait(const std::vector<std::string>& keys, Deadline deadline) = 0;
};

}  // namespace lockstep::contract
