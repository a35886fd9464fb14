#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "trainer/backend/device_backend.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/error.h"

namespace lockstep::trainer::strategy {

// How a rank waits for its device, which may be stuck behind another rank's: with an eye on the others.
class DeviceWatch {
 public:
  struct Options {
    DeviceBackend& device;
    collectives::LocalGroup& group;     // of this machine; outlives the watch
    bool alone = false;                 // there is no other rank
    std::chrono::milliseconds timeout;  // of a wait
    std::function<void()> check;        // throws CollectiveLost when what carries the exchange has failed
  };
  // Collective.
  DeviceWatch(const Options& options, collectives::Deadline deadline);

  // This rank has started so many steps.
  void Started(int64_t steps);
  // Waits for the event; the others have to have started so many steps for it. Throws CollectiveLost, naming
  // who is gone or behind, or DeviceLost where nobody is.
  void Await(DeviceEvent& event, const std::string& operation, int64_t steps);

  // What a communicator says may only be that another rank has given up; the machine's group knows why.
  template <typename Work>
  void WithOthers(Work&& work) {
    try {
      work();
    } catch (const CollectiveLost&) {
      options_.group.LookAtPeers("all-reduce", [](int) { return true; });
      throw;
    }
  }

 private:
  // One on each rank of this machine, in shared memory.
  struct alignas(64) Member {
    std::atomic<int64_t> started;
  };

  Options options_;
  collectives::SharedSegment segment_;
  Member* members_;
};

}  // namespace lockstep::trainer::strategy
