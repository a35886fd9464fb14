#include "launcher/process/output_log.h"

#include <sys/resource.h>

#include "launcher/process/supervisor.h"
#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

using std::chrono::milliseconds;

class OutputLogTest : public testing::Test {
 protected:
  OutputLogTest() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    read_.reset(fds[0]);
    write_.reset(fds[1]);
    console_ = Console::Create(*loop, {.out_fd = write_.get(), .err_fd = write_.get()});
  }
  std::unique_ptr<OutputLog> Make(milliseconds partial_line_limit = std::chrono::hours(1)) {
    auto log = OutputLog::Create(
        *loop,
        {.folder = folder / "logs", .console = console_.get(), .partial_line_limit = partial_line_limit});
    EXPECT_TRUE(log.ok()) << log.status().ToString();
    return std::move(log).value();
  }
  // What is on the console so far.
  std::string Shown() {
    console_->Flush(kDeadline);
    std::string text;
    std::array<char, 65536> buffer;
    while (WaitReadable(read_.get(), milliseconds(0))) {
      const ssize_t size = ::read(read_.get(), buffer.data(), buffer.size());
      if (size <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(size));
    }
    return text;
  }
  // The file without the generations' headers.
  std::string Logged(int rank) {
    std::istringstream lines(ReadAll(folder / ("logs/rank-" + std::to_string(rank) + ".log")));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("=== generation ")) text += line + "\n";
    }
    return text;
  }

  TempFolder folder;
  std::unique_ptr<EventLoop> loop = std::move(EventLoop::Create()).value();

 private:
  UniqueFd read_, write_;
  std::unique_ptr<Console> console_;
};

Launch Rank(int rank, int local_rank) {
  Launch launch;
  launch.rank = rank;
  launch.local_rank = local_rank;
  return launch;
}

TEST_F(OutputLogTest, ShowsWholeLinesWithTheirRank) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(6, 0), Rank(7, 1)}).ok());
  log->Write(0, OutputStream::kStdout, "first\nsec");
  log->Write(1, OutputStream::kStdout, "between\n");
  log->Write(0, OutputStream::kStderr, "error\n");
  log->Write(0, OutputStream::kStdout, "ond\n");
  EXPECT_EQ(Shown(), "[rank 6] first\n[rank 7] between\n[rank 6] error\n[rank 6] second\n");
}

TEST_F(OutputLogTest, WritesEveryByteToTheFileAtOnce) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  const std::string binary("a\0b\xff\r\nrest", 10);
  log->Write(0, OutputStream::kStdout, binary);
  const std::string text = ReadAll(log->LogFile(0));
  EXPECT_EQ(text.substr(text.size() - binary.size()), binary);
}

TEST_F(OutputLogTest, KeepsTheFilesToTheirOwner) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  struct stat info;
  ASSERT_EQ(::stat(log->LogFile(0).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat((folder / "logs").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(OutputLogTest, AppendsEachGenerationAfterAHeader) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  log->Write(0, OutputStream::kStdout, "one\n");
  ASSERT_TRUE(log->Begin(1, {Rank(0, 0)}).ok());
  log->Write(0, OutputStream::kStdout, "two\n");
  EXPECT_EQ(Logged(0), "one\ntwo\n");
  const std::string text = ReadAll(log->LogFile(0));
  EXPECT_LT(text.find("=== generation 0, "), text.find("one"));
  EXPECT_LT(text.find("=== generation 1, "), text.find("two"));
  EXPECT_EQ(log->LastLines(0), std::vector<std::string>{"two"});
}

TEST_F(OutputLogTest, ShowsAPartialLineAfterTheLimit) {
  auto log = Make(milliseconds(10));
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  log->Write(0, OutputStream::kStdout, "password:");
  std::string shown;
  EXPECT_TRUE(RunUntil(*loop, [&] { return !(shown += Shown()).empty(); }));
  EXPECT_EQ(shown, "[rank 0] password:\n");
}

TEST_F(OutputLogTest, ShowsOnlyTheLastStateOfAProgressBar) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  log->Write(0, OutputStream::kStderr, "\r 10%\r 50%\r100%\r\n");
  EXPECT_EQ(Shown(), "[rank 0] 100%\n");
}

TEST_F(OutputLogTest, BreaksALineThatNeverEnds) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  for (int i = 0; i < 50; ++i) log->Write(0, OutputStream::kStdout, std::string(1000, 'x'));
  const std::string shown = Shown();
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3);
}

TEST_F(OutputLogTest, CompletesAReport) {
  auto log = Make();
  ASSERT_TRUE(log->Begin(0, {Rank(5, 0)}).ok());
  for (int i = 0; i < 30; ++i) log->Write(0, OutputStream::kStdout, "line " + std::to_string(i) + "\n");
  log->Write(0, OutputStream::kStderr, "the last words");
  ExitReport report;
  log->Complete(report);
  ASSERT_EQ(report.last_lines.size(), 20u);
  EXPECT_EQ(report.last_lines.front(), "line 11");
  EXPECT_EQ(report.last_lines.back(), "the last words");
  EXPECT_EQ(report.log_file, folder / "logs/rank-5.log");
  EXPECT_NE(Shown().find("[rank 5] the last words\n"), std::string::npos);
}

TEST_F(OutputLogTest, AFullDiskDoesNotEndTheJob) {
  auto log = Make();
  ::mkdir((folder / "logs").c_str(), 0700);
  ASSERT_EQ(::symlink("/dev/full", (folder / "logs/rank-0.log").c_str()), 0);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(log->Begin(0, {Rank(0, 0)}).ok());
  for (int i = 0; i < 3; ++i) log->Write(0, OutputStream::kStdout, "line\n");
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_NE(warnings.find("No space left on device"), std::string::npos) << warnings;
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1) << warnings;
  EXPECT_EQ(Shown(), "[rank 0] line\n[rank 0] line\n[rank 0] line\n");
  EXPECT_EQ(log->LastLines(0).size(), 3u);
}

TEST_F(OutputLogTest, SaysWhenAFileCantBeOpenedAndGoesOnWithoutIt) {
  auto log = Make();
  std::filesystem::create_directories(folder / "logs/rank-0.log");
  EXPECT_FALSE(log->Begin(0, {Rank(0, 0), Rank(1, 1)}).ok());
  log->Write(0, OutputStream::kStdout, "shown\n");
  log->Write(1, OutputStream::kStdout, "logged\n");
  EXPECT_EQ(Shown(), "[rank 0] shown\n[rank 1] logged\n");
  EXPECT_EQ(log->LogFile(0), "");
  EXPECT_EQ(Logged(1), "logged\n");
}

// As job/ ties them together: a console that nobody reads may hold the ranks up for a while but not for ever,
// and the file has every byte.
TEST_F(OutputLogTest, AConsoleThatNobodyReadsHoldsNobodyUpForEver) {
  int fds[2];
  ASSERT_EQ(::pipe2(fds, O_CLOEXEC), 0);
  const UniqueFd unread(fds[0]), out(fds[1]);
  auto console = Console::Create(
      *loop,
      {.out_fd = out.get(), .err_fd = out.get(), .buffer_bytes = 100'000, .stall_limit = milliseconds(1000)});
  auto log =
      std::move(OutputLog::Create(*loop, {.folder = folder / "logs", .console = console.get()})).value();
  bool stopped = false;
  Supervisor supervisor(*loop, {.on_output = [&](int rank, OutputStream stream,
                                                 std::string_view bytes) { log->Write(rank, stream, bytes); },
                                .on_exit = [&](ExitReport& report) { log->Complete(report); },
                                .on_all_stopped = [&](const auto&) { stopped = true; }});
  int pauses = 0;
  console->SetCongestionCallback([&](bool congested) {
    pauses += congested;
    congested ? supervisor.PauseOutput() : supervisor.ResumeOutput();
  });
  const std::vector<Launch> launches = {MakeLaunch(0, {ProbePath(), "flood", "5000000"})};
  ASSERT_TRUE(log->Begin(0, launches).ok());
  ASSERT_TRUE(supervisor.Start(launches).ok());
  ASSERT_TRUE(RunUntil(*loop, [&] { return stopped; }));
  EXPECT_GE(pauses, 1);
  EXPECT_EQ(Logged(0).size(), 5'000'000u);
}

TEST_F(OutputLogTest, SaysWhenTheFolderCantBeMade) {
  WriteAll(folder / "file", "");
  EXPECT_FALSE(OutputLog::Create(*loop, {.folder = folder / "file/logs"}).ok());
}

}  // namespace
}  // namespace lockstep::process
