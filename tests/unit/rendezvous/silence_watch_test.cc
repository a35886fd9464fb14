#include "launcher/rendezvous/silence_watch.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::rendezvous {
namespace {

using testing::Clock;
using testing::In;
using testing::kPatience;
using testing::milliseconds;

class SilenceWatchTest : public ::testing::Test {
 protected:
  void Watch(milliseconds silence) {
    watch_ = std::make_unique<SilenceWatch>(SilenceWatch::Options{
        .loop = loop_.get(), .heartbeat = milliseconds(50), .silence = silence, .on_silent = [this] {
          silent_ = true;
          watch_.reset();
        }});
  }

  void RunUntilSilent() {
    const auto deadline = In(kPatience);
    while (!silent_ && Clock::now() < deadline) loop_->RunOnce(milliseconds(5));
    EXPECT_TRUE(silent_);
  }

  const std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::Create());
  std::unique_ptr<SilenceWatch> watch_;
  bool silent_ = false;
};

TEST_F(SilenceWatchTest, TellsOfSilenceWhenItHasLastedLongEnough) {
  const auto start = Clock::now();
  Watch(milliseconds(100));
  RunUntilSilent();
  EXPECT_GE(Clock::now() - start, milliseconds(100));
}

TEST_F(SilenceWatchTest, WhoIsHeardIsNotSilent) {
  Watch(milliseconds(300));
  const auto end = In(milliseconds(900));
  while (Clock::now() < end) {
    watch_->Heard();
    loop_->RunOnce(milliseconds(5));
    ASSERT_FALSE(silent_);
  }
}

TEST_F(SilenceWatchTest, OwnStandstillIsNotHeldAgainstThePeer) {
  Watch(milliseconds(100));
  std::this_thread::sleep_for(milliseconds(300));  // the standstill
  loop_->RunOnce({});
  EXPECT_FALSE(silent_);
  RunUntilSilent();  // but only once
}

}  // namespace
}  // namespace lockstep::rendezvous
