#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "launcher/rendezvous/channel.h"
#include "launcher/rendezvous/control_message.h"
#include "launcher/rendezvous/coordinator.h"
#include "launcher/rendezvous/listener.h"
#include "launcher/rendezvous/membership.h"
#include "launcher/rendezvous/silence_watch.h"
#include "launcher/rendezvous/store_server.h"

namespace lockstep::rendezvous {

// Membership of replica 0: carries out what the coordinator decides, here and at the other launchers.
class Leader : public Membership {
 public:
  static Result<std::unique_ptr<Membership>> Create(Options options);
  ~Leader() override;

  void ReportReady(int processes) override;
  void ReportStopped(int exit_code) override;
  void ReportFailure(FailureReport report) override;
  void ReportDone() override;
  void RequestStop(const std::string& message, int exit_code_if_idle) override;
  void DecideRestart(Clock::duration delay) override;
  void DecideRestartAlone(const FailureReport& failure, std::chrono::milliseconds delay) override;
  void DecideFinish(int exit_code, const std::string& message) override;
  void Withdraw(int exit_code, const std::string& message) override;
  std::string rendezvous_address() const override;

 private:
  using NewcomerId = uint64_t;

  // Authenticated, but not (or never to be) a member.
  struct Newcomer {
    std::unique_ptr<Channel> channel;
    EventLoop::TimerId timer = 0;
  };
  struct Peer {
    std::unique_ptr<Channel> channel;
    std::string instance;
    std::string host;
    std::unique_ptr<SilenceWatch> silence;
  };

  explicit Leader(Options options);

  void OnLauncher(std::unique_ptr<Channel> channel, const contract::PeerIdentity& identity);
  void OnJoin(NewcomerId id, const contract::PeerIdentity& identity, std::string_view body);
  // `generation`: the highest that the one who joins has seen.
  Status MayJoin(int replica, const JoinMessage& join, int64_t generation);
  bool IsSuperseded(int replica, const std::string& instance) const;
  void SetHolder(int replica, const std::string& instance);
  void RemoveNewcomer(NewcomerId id);
  void OnPeerFrame(int replica, std::string_view body);
  void LosePeer(int replica, const std::string& why, bool leaves = false);
  void RemovePeer(int replica);
  void SendHeartbeats();
  void Broadcast(const ControlMessage& message);

  void Apply(const Coordinator::Actions& actions);
  void Do(const Coordinator::Start& start);
  void Do(const Coordinator::Resume& resume);
  void Do(const Coordinator::RestartProcess& restart);
  void Do(const Coordinator::Stop& stop);
  void Do(const Coordinator::AskOwner& ask);
  void Do(const Coordinator::NotePeerLost& note);
  void Do(const Coordinator::Finish& finish);
  void FinishOnceSeen();
  std::string OwnHost() const;
  // Under which the others reach it.
  std::string HostOf(int replica) const;
  // Calls the owner back from the loop.
  void Post(std::function<void()> callback);

  Options options_;
  EventLoop& loop_;
  Coordinator coordinator_;
  std::unique_ptr<StoreServer> server_;
  std::optional<PortReservation> master_port_;
  StartMessage start_;  // of this generation, for a replica that returns to it

  NewcomerId next_newcomer_ = 1;
  std::map<NewcomerId, Newcomer> newcomers_;
  std::map<int, Peer> peers_;  // by replica
  // Who had a replica's place last, and who had it before, the oldest first: they are not taken in again.
  std::map<int, std::string> holders_;
  std::deque<std::pair<int, std::string>> superseded_;
  bool led_ = false;        // a generation
  bool withdrawn_ = false;  // another replica 0 leads
  EventLoop::TimerId heartbeat_timer_ = 0;
  EventLoop::TimerId deadline_timer_ = 0;
  EventLoop::TimerId finish_timer_ = 0;
  std::optional<Coordinator::Finish> finish_;  // decided, and being told to the others
  bool finished_ = false;                      // the owner has been told, or is about to be
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::rendezvous
