#pragma once

#include <chrono>
#include <functional>

#include "common/contract/store.h"

namespace lockstep::trainer::trace {

// Where a process stands: which machine, and which of its processes.
struct ClockPlace {
  int machine = 0;
  int machines = 1;
  int local_rank = 0;
};

// Collective: what is to be added to this machine's monotonic clock to have that of machine 0, so that spans
// of several machines can be laid over one another. The first process of each machine asks machine 0's for
// its time, several times, through the job's store, and believes the quickest answer (Cristian,
// "Probabilistic clock synchronization", 1989): the error is at most half of what that one took. Clocks that
// drift by 20 ppm are a millisecond apart after a minute, so it is to be measured close to what it is for.
//
// On machine 0, and where it is the only one, 0 at once. Fails as the store does, by the deadline. `now`
// stands in for the clock in tests.
Result<std::chrono::nanoseconds> OffsetToFirstMachine(
    const ClockPlace& place, contract::Store* store, contract::Store::Deadline deadline,
    const std::function<std::chrono::nanoseconds()>& now = [] {
      return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
    });

}  // namespace lockstep::trainer::trace
