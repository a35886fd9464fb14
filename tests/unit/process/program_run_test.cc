#include "launcher/process/program_run.h"

#include <memory>
#include <optional>

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

struct Ended {
  std::string text;
  bool in_time = false;
};

class ProgramRunTest : public ::testing::Test {
 protected:
  std::optional<Ended> RunToEnd(const std::string& script, std::chrono::milliseconds limit = kDeadline,
                                size_t most_bytes = 1 << 20) {
    ended_.reset();
    auto run = ProgramRun::Start(*loop_, Of(script, limit, most_bytes));
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    if (!run.ok()) return std::nullopt;
    run_ = std::move(*run);
    EXPECT_TRUE(RunUntil(*loop_, [&] { return ended_.has_value(); }));
    return ended_;
  }
  ProgramRun::Options Of(const std::string& script, std::chrono::milliseconds limit, size_t most_bytes) {
    return {.launch = Shell(0, script),
            .limit = limit,
            .most_bytes = most_bytes,
            .on_end = [this](std::string text, bool in_time) {
              EXPECT_FALSE(ended_.has_value()) << "told twice";
              ended_ = Ended{std::move(text), in_time};
            }};
  }

  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  std::optional<Ended> ended_;
  std::unique_ptr<ProgramRun> run_;
};

TEST_F(ProgramRunTest, TellsWhatWasWrittenToBothStreams) {
  const auto ended = RunToEnd("echo out; echo err >&2; head -c 300000 /dev/zero | tr '\\0' x; exit 3");
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->in_time);
  EXPECT_EQ(ended->text.size(), 300'008u);
  EXPECT_NE(ended->text.find("out\n"), std::string::npos);
  EXPECT_NE(ended->text.find("err\n"), std::string::npos);
}

TEST_F(ProgramRunTest, KeepsTheBeginningOfTooMuch) {
  const auto ended = RunToEnd("echo begin; head -c 3000000 /dev/zero | tr '\\0' x", kDeadline, 1000);
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->in_time);
  EXPECT_EQ(ended->text, "begin\n" + std::string(994, 'x'));
}

TEST_F(ProgramRunTest, KillsAtItsLimitAndTellsWhatThereIs) {
  TempFolder folder;
  LifeLine line(folder / "line");
  const auto ended =
      RunToEnd("exec 7> " + line.path() + "; trap '' TERM; sleep 1000 & echo begin; exec cat /dev/zero >&7",
               std::chrono::milliseconds(200));
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->in_time);
  EXPECT_EQ(ended->text, "begin\n");
  run_.reset();
  EXPECT_TRUE(line.WaitForEnd()) << "its group is gone";
}

TEST_F(ProgramRunTest, IsKilledWithItsOwner) {
  TempFolder folder;
  LifeLine line(folder / "line");
  auto run = ProgramRun::Start(
      *loop_, Of("exec 7> " + line.path() + "; echo sh $$ >&7; exec sleep 1000", kDeadline, 10));
  ASSERT_TRUE(run.ok());
  ASSERT_EQ(line.WaitFor(1).size(), 1u);
  run->reset();
  EXPECT_TRUE(line.WaitForEnd());
  EXPECT_FALSE(ended_.has_value());
}

TEST_F(ProgramRunTest, EndsAlsoWhereSomebodyElseHasWaitedForIt) {
  auto run = ProgramRun::Start(*loop_, Of("echo text", kDeadline, 100));
  ASSERT_TRUE(run.ok());
  ASSERT_GT(::waitpid(-1, nullptr, 0), 0);  // as a Supervisor does
  EXPECT_TRUE(RunUntil(*loop_, [&] { return ended_.has_value(); }));
  EXPECT_EQ(ended_->text, "text\n");
}

TEST_F(ProgramRunTest, SaysWhyThereIsNone) {
  ProgramRun::Options options = Of("", kDeadline, 1);
  options.launch.command = {"/no/such/program"};
  EXPECT_EQ(ProgramRun::Start(*loop_, std::move(options)).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::process
