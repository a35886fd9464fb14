#pragma once

#include <chrono>
#include <string>

#include "launcher/kube/client.h"

namespace lockstep::kube {

struct LeaseOptions {
  ObjectName name;
  std::string identity;  // unique among the processes that compete
  std::chrono::seconds duration{15};
  CallOptions call = {.timeout = std::chrono::milliseconds(5'000)};
};

struct LeaseView {
  bool held = false;   // by this identity
  std::string holder;  // empty: by nobody
  int transitions = 0;
  // Until when nobody else takes it, by this machine's clock: counted from before the last renewal was sent.
  Clock::time_point held_until{};
};

// A coordination.k8s.io Lease as a lock among processes, by the rules of client-go's leader election:
// another's lease has run out when it has not changed for its duration *as this process saw it*, so clocks
// may differ, their rates may not. It does not fence: whoever acts under it checks `held_until` first, and
// every write must be harmless when done twice. One thread.
class LeaseLock {
 public:
  // `client` outlives it.
  LeaseLock(Client* client, LeaseOptions options);

  // One step: creates the lease, renews ours, takes one that has run out, or looks at another's. `now` is the
  // steady clock's. An error leaves everything as it was, and a lease that was held is held until held_until.
  Answer<LeaseView> TryHold(Clock::time_point now = Clock::now());

  // Gives a held lease back at once, so that another need not wait for it to run out. Does nothing when not
  // held.
  Answer<LeaseView> Release();

  const LeaseView& view() const { return view_; }

 private:
  Answer<LeaseView> Keep(Answer<Json> written, Clock::time_point now);

  Client* client_;
  LeaseOptions options_;
  LeaseView view_;
  std::string seen_version_;  // resourceVersion of the lease as last seen
  std::chrono::seconds seen_duration_{0};
  Clock::time_point seen_at_{};  // when that version was first seen
};

}  // namespace lockstep::kube
