#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/contract/authentication.h"
#include "common/contract/store_address.h"
#include "common/event_loop.h"
#include "launcher/rendezvous/channel.h"
#include "launcher/rendezvous/control_message.h"
#include "launcher/rendezvous/silence_watch.h"

namespace lockstep::rendezvous {

// A follower's connection to replica 0: looks its name up, connects, proves itself, joins, keeps the
// heartbeat in both directions, and begins again whenever that breaks, for as long as it lives.
class LeaderLink {
 public:
  using Clock = std::chrono::steady_clock;

  struct Handler {
    // A member from now on, of the store of this id (hexadecimal digits), reached at this numeric address.
    std::function<void(const std::string& store_id, const std::string& host)> on_joined;
    // Any of the leader's messages but Joined and Heartbeat.
    std::function<void(const ControlMessage&)> on_message;
    // After on_joined: the connection is gone or silent. It tries again by itself.
    std::function<void(const std::string& why)> on_lost;
    // Trying again makes no sense; it has given up.
    std::function<void(const Status& why)> on_refused;
  };

  struct Options {
    EventLoop* loop = nullptr;
    contract::Token token;
    std::string job = {};
    int replica = 0;
    std::string address = {};  // HOST:PORT, well-formed
    JoinMessage join = {};
    Clock::duration heartbeat = std::chrono::seconds(1);
    Clock::duration silence = std::chrono::seconds(4);
    Handler handler = {};
  };

  explicit LeaderLink(Options options);
  ~LeaderLink();

  // To be told to the leader when joining; -1 at first.
  void set_highest_generation(int64_t generation) { highest_generation_ = generation; }

  // The handler is called from the loop only, never from inside these. It may call them, not destroy the
  // link.
  void Start();
  // Nothing if it is not joined.
  void Send(const ControlMessage& message);
  // Sends a last message if it is joined, and calls nobody any more.
  void Leave(const ControlMessage& last);
  // Gives up, and calls nobody any more.
  void Close();

  bool joined() const { return state_ == State::kJoined; }
  // Of the last attempt that failed; empty at first.
  const std::string& last_error() const { return last_error_; }

 private:
  enum class State {
    kPausing,
    kLookingUp,
    kConnecting,
    kAwaitChallenge,
    kAwaitWelcome,
    kAwaitJoined,
    kJoined,
    kOver
  };

  void Attempt();
  void PollLookup(std::chrono::milliseconds pause);
  void ConnectNext();
  void OnConnected();
  void OnFrame(std::string_view body);
  void OnHandshakeFrame(std::string_view body);
  void OnJoined(const Status& status);
  // The store there is one that it has left for another.
  bool IsLeftStore() const;
  void SendHeartbeats();
  // The attempt came to nothing, or the connection broke: from the beginning, after a pause.
  void Retry(const Status& why);
  void Refuse(const Status& why);
  void Reset();

  Options options_;
  EventLoop& loop_;
  std::minstd_rand random_{std::random_device{}()};
  int64_t highest_generation_ = -1;
  State state_ = State::kPausing;
  bool was_joined_ = false;
  std::string last_error_;
  std::chrono::milliseconds pause_{0};
  std::string store_id_;                  // of the store that it is, or was last, a member of
  std::vector<std::string> left_stores_;  // before that, the oldest first: it does not go back to them
  std::optional<Clock::time_point> taken_since_;  // since when another launcher has had this replica's place

  std::unique_ptr<contract::NameLookup> lookup_;
  std::vector<contract::SocketAddress> addresses_;  // still to be tried, the next one last
  UniqueFd connecting_;
  std::unique_ptr<contract::ClientHandshake> handshake_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<SilenceWatch> silence_;  // while kJoined
  EventLoop::TimerId timer_ = 0;           // of the pause or the lookup
  EventLoop::TimerId attempt_timer_ = 0;   // bounds what comes before kJoined
  EventLoop::TimerId heartbeat_timer_ = 0;
};

}  // namespace lockstep::rendezvous
