#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "launcher/pmix/job_map.h"
#include "launcher/pmix/store_link.h"

namespace lockstep::pmix {

// PMIx's fences over several machines: a server has what its own ranks contributed, and gets what all of them
// did, in the order of the machines. Over the job's store. Thread-safe.
class Fences {
 public:
  // Ok with all contributions, or why there are none.
  using Done = std::function<void(Result<std::string>)>;

  // `store` outlives this; it is used for fences of several machines alone.
  Fences(JobMap map, StoreLink& store);
  // Waits for the calls under way, which end with the generation: the store says so.
  ~Fences();
  Fences(const Fences&) = delete;
  Fences& operator=(const Fences&) = delete;

  // All ranks of this machine that are among `ranks` have come; empty: of all. Calls `done` once, here or on
  // a thread of its own. Every server counts the fences of the same ranks alike.
  void Enter(const std::vector<int>& ranks, std::string contribution, Done done);

 private:
  Result<std::string> Exchange(const std::string& key, const std::vector<size_t>& machines,
                               const std::string& contribution);

  const JobMap map_;
  StoreLink& store_;
  struct Group {
    int fences = 0;       // so far
    std::jthread thread;  // of the last of them
  };
  std::mutex mutex_;                     // guards the one below
  std::map<std::string, Group> groups_;  // of ranks that have met
};

}  // namespace lockstep::pmix
