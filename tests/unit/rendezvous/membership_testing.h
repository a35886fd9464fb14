#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/rendezvous/membership.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

// Launchers as event loops of one thread, over real sockets. One whose loop is not driven is one that hangs,
// or is cut off: its connections stay open and nothing comes from it.
namespace lockstep::rendezvous::testing {

// A launcher whose ranks start and stop at once.
class Launcher {
 public:
  explicit Launcher(const std::function<void(Membership::Options&)>& adjust) {
    loop_ = std::move(*EventLoop::Create());
    Membership::Options options{.loop = loop_.get(), .token = contract::Token::Random()};
    options.job = "mnist";
    options.manifest_digest = "digest";
    options.heartbeat = milliseconds(50);
    options.silence = milliseconds(400);
    options.callbacks = {
        .on_start_generation = [this](const GenerationStart& start) { starts.push_back(start); },
        .on_stop_generation =
            [this](const GenerationStop& stop) {
              stops.push_back(stop);
              if (stops_at_once) membership->ReportStopped(stop_exit_code);
            },
        .on_finish =
            [this](int exit_code, const std::string& message) {
              EXPECT_FALSE(finish.has_value());
              finish = exit_code;
              finish_message = message;
            },
        .on_failure_reported = [this](const FailureReport& failure) { failures.push_back(failure); },
        .on_peer_lost = [this](int, const std::string& message) { losses.push_back(message); },
        .on_peer_joined = [this](int replica, const std::string&) { joined.push_back(replica); }};
    adjust(options);
    Result<std::unique_ptr<Membership>> created = Membership::Create(std::move(options));
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    if (created.ok()) membership = std::move(*created);
  }
  ~Launcher() { membership.reset(); }

  void Turn() { loop_->RunOnce(milliseconds(1)); }
  int64_t generation() const { return starts.empty() ? -1 : starts.back().generation; }

  bool stops_at_once = true;
  int stop_exit_code = 0;
  std::vector<GenerationStart> starts;
  std::vector<GenerationStop> stops;
  std::vector<FailureReport> failures;
  std::vector<std::string> losses;
  std::vector<int> joined;
  std::optional<int> finish;
  std::string finish_message;

 private:
  std::unique_ptr<EventLoop> loop_;

 public:
  std::unique_ptr<Membership> membership;
};

class MembershipTest : public ::testing::Test {
 protected:
  using Adjust = std::function<void(Membership::Options&)>;

  std::unique_ptr<Launcher> Make(int replica, int replicas, const Adjust& adjust = {}) {
    return std::make_unique<Launcher>([&](Membership::Options& options) {
      options.token = token_;
      options.replica = replica;
      options.replicas = replicas;
      options.rendezvous = address_;
      if (adjust) adjust(options);
    });
  }
  // Replica 0; the later ones find it.
  std::unique_ptr<Launcher> Lead(int replicas, const Adjust& adjust = {}) {
    if (address_.empty()) address_ = "127.0.0.1:0";
    auto leader = Make(0, replicas, adjust);
    address_ = leader->membership->rendezvous_address();
    return leader;
  }
  // `replicas` launchers with two processes each, all in generation 0.
  std::vector<std::unique_ptr<Launcher>> Running(int replicas, const Adjust& adjust = {}) {
    std::vector<std::unique_ptr<Launcher>> all;
    all.push_back(Lead(replicas, adjust));
    for (int i = 1; i < replicas; ++i) all.push_back(Make(i, replicas, adjust));
    for (auto& launcher : all) launcher->membership->ReportReady(2);
    EXPECT_TRUE(Drive(Views(all), [&] { return AllAt(all, 0); }));
    return all;
  }

  static std::vector<Launcher*> Views(const std::vector<std::unique_ptr<Launcher>>& all) {
    std::vector<Launcher*> views;
    for (const auto& launcher : all) views.push_back(launcher.get());
    return views;
  }
  static bool AllAt(const std::vector<std::unique_ptr<Launcher>>& all, int64_t generation) {
    for (const auto& launcher : all) {
      if (launcher->generation() != generation) return false;
    }
    return true;
  }
  // Runs the loops of `launchers`, and no others, until `reached`.
  static bool Drive(const std::vector<Launcher*>& launchers, const std::function<bool()>& reached,
                    Clock::duration limit = kPatience) {
    const auto deadline = In(limit);
    while (!reached()) {
      if (Clock::now() >= deadline) return false;
      for (Launcher* launcher : launchers) launcher->Turn();
    }
    return true;
  }

  const contract::Token token_ = contract::Token::Random();
  std::string address_;
};

}  // namespace lockstep::rendezvous::testing
