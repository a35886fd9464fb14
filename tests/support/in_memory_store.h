#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/store.h"
#include "common/contract/store_protocol.h"

namespace lockstep::testing {

// A Store without a launcher: N ranks as N threads of one test share one object.
class InMemoryStore : public contract::Store {
 public:
  Status Set(std::string_view key, std::string_view value, Deadline) override {
    LOCKSTEP_RETURN_IF_ERROR(contract::CheckRequest({.verb = contract::FrameType::kSet,
                                                     .id = 1,
                                                     .keys = {std::string(key)},
                                                     .value = std::string(value)}));
    const std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    values_[std::string(key)] = value;
    changed_.notify_all();
    return {};
  }

  Result<std::string> Get(std::string_view key, Deadline deadline) override {
    LOCKSTEP_RETURN_IF_ERROR(Wait({std::string(key)}, deadline));
    const std::lock_guard lock(mutex_);
    return values_.at(std::string(key));
  }

  Result<int64_t> Add(std::string_view key, int64_t amount, Deadline) override {
    const std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    const auto it = values_.find(std::string(key));
    const Result<int64_t> sum = contract::AddToCounter(it == values_.end() ? "" : it->second, amount);
    if (!sum.ok()) return sum;
    values_[std::string(key)] = std::to_string(*sum);
    changed_.notify_all();
    return sum;
  }

  Status Wait(const std::vector<std::string>& keys, Deadline deadline) override {
    LOCKSTEP_RETURN_IF_ERROR(
        contract::CheckRequest({.verb = contract::FrameType::kWait, .id = 1, .keys = keys}));
    std::unique_lock lock(mutex_);
    while (true) {
      if (!ended_.ok()) return ended_;
      std::string missing;
      for (const std::string& key : keys) {
        if (!values_.contains(key)) missing += (missing.empty() ? "" : ", ") + key;
      }
      if (missing.empty()) return {};
      if (std::chrono::steady_clock::now() >= deadline)
        return DeadlineExceeded("store: waited for key " + missing);
      changed_.wait_until(lock, deadline);
    }
  }

  // As when the generation ends: every call, those that wait included, fails with kAborted.
  void EndGeneration() {
    const std::lock_guard lock(mutex_);
    ended_ = Aborted("store: the generation is over");
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  Status ended_;
};

}  // namespace lockstep::testing
