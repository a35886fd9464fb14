#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/rendezvous/leader_link.h"
#include "launcher/rendezvous/membership.h"

namespace lockstep::rendezvous {

// Membership of every replica but 0: does what the leader says, and stops its ranks when it hears no more of
// it.
class Follower : public Membership {
 public:
  static Result<std::unique_ptr<Membership>> Create(Options options);
  ~Follower() override;

  void ReportReady(int processes) override;
  void ReportStopped(int exit_code) override;
  void ReportFailure(FailureReport report) override;
  void ReportDone() override;
  void RequestStop(const std::string& message, int exit_code_if_idle) override;
  // Decisions are the leader's: nothing happens here.
  void DecideRestart(Clock::duration) override {}
  void DecideRestartAlone(const FailureReport&, std::chrono::milliseconds) override {}
  void DecideFinish(int, const std::string&) override {}
  void Withdraw(int, const std::string&) override {}
  std::string rendezvous_address() const override { return options_.rendezvous; }

 private:
  // How it ends once its ranks have stopped.
  struct Ending {
    std::optional<int> exit_code;  // empty: what its ranks came to
    std::string message;
  };

  explicit Follower(Options options);

  void OnJoined(const std::string& store_id, const std::string& host);
  void OnMessage(const ControlMessage& message);
  void OnStart(const struct StartMessage& message);
  void OnLost(const std::string& why);
  void AwaitLeader();
  void StopRanks(StopCause cause, const std::string& message);
  void EndWith(Ending ending);
  void Finish(int exit_code, const std::string& message);
  void Post(std::function<void()> callback);

  Options options_;
  EventLoop& loop_;
  std::unique_ptr<LeaderLink> link_;
  std::string store_id_;
  std::string leader_host_;  // numeric

  int processes_ = 0;              // 0: not ready yet
  int64_t generation_ = -1;        // the highest seen
  bool running_ = false;           // from on_start_generation until ReportStopped()
  bool done_ = false;              // ReportDone(): its ranks have ended, only the generation is not over
  std::optional<StopCause> stop_;  // told to the owner for this generation
  // The leader counts on this replica for the generation. Not after the connection broke: then it is lost
  // there.
  bool counted_on_ = false;
  int stop_exit_code_ = 0;
  std::optional<Ending> ending_;
  bool finished_ = false;
  EventLoop::TimerId deadline_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::rendezvous
