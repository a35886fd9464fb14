#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace lockstep::rendezvous {

// The keys and values of one generation, and who waits for them. No I/O and no clock: whoever waits keeps its
// own deadline and calls Forget(). Bytes held for keys, values and waiting are bounded together.
class StoreTable {
 public:
  using WaiterId = uint64_t;
  using OnComplete = std::function<void()>;

  explicit StoreTable(size_t max_bytes) : max_bytes_(max_bytes) {}

  // kResourceExhausted, changing nothing, if it would go over the bound. Completes who waited for `key`.
  Status Set(std::string_view key, std::string_view value);
  // nullptr: not there. Valid until the next change.
  const std::string* Find(std::string_view key) const;
  // Those of `keys` that are not there, in order.
  std::vector<std::string> Missing(const std::vector<std::string>& keys) const;

  // Calls `on_complete` once, from within a later Set(), when all of `keys` (of which some are missing) are
  // there. kResourceExhausted if waiting would go over the bound.
  Result<WaiterId> Await(const std::vector<std::string>& keys, OnComplete on_complete);
  // The keys that `waiter` still misses.
  std::vector<std::string> MissingOf(WaiterId waiter) const;
  // Does nothing for one that is complete or forgotten.
  void Forget(WaiterId waiter);

  // Keys, values and waiters, all forgotten without a call.
  void Clear();

  size_t bytes() const { return bytes_; }
  size_t waiters() const { return waiters_.size(); }

 private:
  struct Waiter {
    std::set<std::string, std::less<>> missing;
    size_t bytes = 0;
    OnComplete on_complete;
  };

  static constexpr size_t kEntryOverheadBytes = 128;

  size_t max_bytes_;
  size_t bytes_ = 0;
  WaiterId next_waiter_ = 1;
  std::map<std::string, std::string, std::less<>> values_;
  std::map<WaiterId, Waiter> waiters_;
  std::map<std::string, std::set<WaiterId>, std::less<>> waiting_for_;  // by key
};

}  // namespace lockstep::rendezvous
