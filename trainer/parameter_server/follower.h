#pragma once

#include <atomic>
#include <functional>

#include "trainer/parameter_server/client.h"
#include "trainer/parameter_server/shard.h"

namespace lockstep::trainer::parameter_server {

// What a server other than server 0 does besides answering: what server 0 says, in its order.
class Follower {
 public:
  enum class End { kFinished, kStopped };

  // Each update that was made.
  using OnUpdate = std::function<void(const Command&)>;

  Follower(PeerOptions options, contract::Store& store, Shard& shard, OnUpdate on_update)
      : options_(std::move(options)), store_(store), shard_(shard), on_update_(std::move(on_update)) {}

  // Until server 0 says that it is over, or `stop_time` after RequestStop. Finds server 0 again when it is
  // lost; throws CollectiveLost when it stays away.
  End Run();

  // From any thread.
  void RequestStop() { stop_asked_ = Clock::now().time_since_epoch().count(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<End> Obey(Connection& connection);
  bool StopIsDue() const;

  PeerOptions options_;
  contract::Store& store_;
  Shard& shard_;
  OnUpdate on_update_;
  std::atomic<Clock::rep> stop_asked_{0};
};

}  // namespace lockstep::trainer::parameter_server
