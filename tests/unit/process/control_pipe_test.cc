#include "launcher/process/control_pipe.h"

#include <gtest/gtest.h>

#include "common/contract/control_line.h"
#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

class ControlPipeTest : public testing::Test {
 protected:
  ControlPipeTest() {
    std::array<int, 2> fds;
    EXPECT_EQ(::pipe2(fds.data(), O_CLOEXEC | O_NONBLOCK), 0);
    reader.reset(fds[0]);
    old_handler_ = ::signal(SIGPIPE, SIG_IGN);
    pipe = std::make_unique<ControlPipe>(*loop, UniqueFd(fds[1]));
  }
  ~ControlPipeTest() override { ::signal(SIGPIPE, old_handler_); }

  // What is there now.
  std::string Read() const {
    std::string text;
    std::array<char, 65536> buffer;
    ssize_t size;
    while ((size = ::read(reader.get(), buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<size_t>(size));
    }
    return text;
  }

  std::unique_ptr<EventLoop> loop = std::move(EventLoop::Create()).value();
  UniqueFd reader;
  std::unique_ptr<ControlPipe> pipe;

 private:
  sighandler_t old_handler_;
};

TEST_F(ControlPipeTest, ALineIsThereAtOnce) {
  EXPECT_TRUE(pipe->Write("one\n"));
  EXPECT_TRUE(pipe->Write("two\n"));
  EXPECT_EQ(Read(), "one\ntwo\n");
}

TEST_F(ControlPipeTest, WhatThePipeDoesNotHoldFollowsWhenItIsRead) {
  const std::string longest = std::string(contract::kMaxControlBytes - 1, 'x') + "\n";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pipe->Write(longest)) << i;  // one in the pipe, two here
  std::string text;
  ASSERT_TRUE(RunUntil(*loop, [&] {
    text += Read();
    return text.size() == 3 * longest.size();
  }));
  EXPECT_EQ(text, longest + longest + longest);
  EXPECT_TRUE(pipe->Write("and on\n"));
  EXPECT_EQ(Read(), "and on\n");
}

TEST_F(ControlPipeTest, AProcessThatNeverReadsDoesNotMakeUsKeepWithoutLimit) {
  const std::string longest = std::string(contract::kMaxControlBytes - 1, 'x') + "\n";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pipe->Write(longest));
  EXPECT_FALSE(pipe->Write(longest));
  loop->RunOnce(std::chrono::milliseconds(0));  // no callback spins, nothing is lost
  EXPECT_EQ(Read(), longest);
}

TEST_F(ControlPipeTest, AReaderThatIsGoneIsNoFailureOfOurs) {
  reader.reset();
  EXPECT_FALSE(pipe->Write("anybody?\n"));
  EXPECT_FALSE(pipe->Write("nobody\n"));
}

TEST_F(ControlPipeTest, AReaderThatGoesWhileLinesWaitIsNoticed) {
  const std::string longest = std::string(contract::kMaxControlBytes - 1, 'x') + "\n";
  EXPECT_TRUE(pipe->Write(longest));
  EXPECT_TRUE(pipe->Write(longest));
  reader.reset();
  ASSERT_TRUE(RunUntil(*loop, [&] { return !pipe->Write("still there?\n"); }));
}

TEST_F(ControlPipeTest, ItsEndIsAnEndOfFile) {
  pipe.reset();
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
}

}  // namespace
}  // namespace lockstep::process
