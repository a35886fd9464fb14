#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "launcher/kube/resource.h"

namespace lockstep::op {

// Jobs to look at. One that is added several times before its turn has one turn; one that is added during its
// turn has another afterwards; none has two at a time. Safe from every thread.
class WorkQueue {
 public:
  using Key = kube::ObjectName;
  using Clock = std::chrono::steady_clock;

  struct Turn {
    Key key;
    Clock::duration waited;
  };

  void Add(const Key& key);
  // Not before `delay`; of several the first counts.
  void AddAfter(const Key& key, Clock::duration delay);
  // After 5 ms, doubled by every failure in a row up to 60 s.
  void AddAfterFailure(const Key& key);
  // Ends the row.
  void Forget(const Key& key);

  // Waits for a turn; empty once shut down. Each turn is ended by Done.
  std::optional<Turn> Get();
  void Done(const Key& key);

  void ShutDown();
  size_t depth() const;  // what waits for a turn now, without what is delayed

 private:
  void AddLocked(const Key& key);
  // Moves what is due; the time of the next.
  std::optional<Clock::time_point> TakeDue();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Key, Clock::time_point>> ready_;
  std::set<Key> waiting_;  // in ready_, or added during their turn
  std::set<Key> working_;
  std::map<Key, Clock::time_point> due_;
  std::set<std::pair<Clock::time_point, Key>> by_time_;
  std::map<Key, int> failures_;
  bool shut_down_ = false;
};

}  // namespace lockstep::op
