#include "trainer/parameter_server/follower.h"

#include <thread>
#include <vector>

#include "common/log.h"

namespace lockstep::trainer::parameter_server {

bool Follower::StopIsDue() const {
  const Clock::rep asked = stop_asked_;
  return asked != 0 &&
         Clock::now().time_since_epoch().count() - asked > Clock::duration(options_.stop_time).count();
}

Follower::End Follower::Run() {
  Clock::time_point seen = Clock::now();
  while (true) {
    try {
      Connection connection = ConnectToServer(options_, store_, 0);
      while (true) {
        if (const std::optional<End> end = Obey(connection)) return *end;
        seen = Clock::now();
        if (StopIsDue()) return End::kStopped;
      }
    } catch (const ConnectionLost& lost) {
      // Nobody gets parameters from here that may be part of no common state any more.
      shard_.Void();
      if (StopIsDue()) return End::kStopped;
      if (IsFinished(store_)) return End::kFinished;
      if (Clock::now() - seen > options_.away_time) {
        throw CollectiveLost(std::string("parameter server 0 stays away: ") + lost.what());
      }
      std::this_thread::sleep_for(kRetryPause);
    }
  }
}

std::optional<Follower::End> Follower::Obey(Connection& connection) {
  const auto command = connection.ReceiveAs<Command>(Clock::now() + options_.answer_time);
  const Deadline deadline = Clock::now() + options_.answer_time;
  const auto floats = static_cast<size_t>(shard_.floats());
  std::vector<std::vector<float>> state;
  if (command.order == Order::kLoad || command.order == Order::kState) {
    state.assign(size_t{1} + static_cast<size_t>(shard_.slots()), std::vector<float>(floats));
  }
  switch (command.order) {
    case Order::kNothing:
      break;
    case Order::kLoad:
      for (std::vector<float>& values : state) connection.ReceiveFloats(values, deadline);
      shard_.Load(command.era, command.version, state.front(),
                  std::vector<std::span<const float>>(state.begin() + 1, state.end()));
      break;
    case Order::kApply:
      if (!shard_.Apply(command.version, command.leases)) throw ConnectionLost("a gradient is not here");
      on_update_(command);
      break;
    case Order::kDrop:
      for (size_t i = 0; i < std::min(command.leases.size(), command.workers.size()); ++i) {
        shard_.Drop(command.workers[i], command.leases[i]);
      }
      break;
    case Order::kState: {
      shard_.Export(state.front(), std::vector<std::span<float>>(state.begin() + 1, state.end()));
      connection.Send(Encode(Obeyed{}), deadline);
      for (const std::vector<float>& values : state) connection.SendFloats(values, deadline);
      return std::nullopt;
    }
    case Order::kFinish:
    case Order::kStop:
      connection.Send(Encode(Obeyed{}), deadline);
      return command.order == Order::kFinish ? End::kFinished : End::kStopped;
  }
  connection.Send(Encode(Obeyed{}), deadline);
  return std::nullopt;
}

}  // namespace lockstep::trainer::parameter_server
