#include "launcher/process/exit_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/process/failure_report.h"
#include "launcher/process/line_tail.h"

namespace lockstep::process {
namespace {

using std::chrono::milliseconds;

ExitReport Exited(int rank, int code) {
  ExitReport report;
  report.rank = report.local_rank = rank;
  report.role = "worker";
  report.own_trainer = true;
  report.pid = 4700 + rank;
  report.exit_code = code;
  report.reason = code == 0 ? ExitReason::kCompleted : ExitReason::kError;
  return report;
}

ExitReport Killed(int rank, int signal, ExitReason reason = ExitReason::kSignal) {
  ExitReport report = Exited(rank, 128 + signal);
  report.signal = signal;
  report.reason = reason;
  report.asked_to_stop = reason == ExitReason::kStopped;
  return report;
}

TEST(ExitReportTest, SaysSignalsAndCodesInWords) {
  ExitReport crash = Killed(0, SIGSEGV);
  crash.core_dumped = true;
  EXPECT_EQ(ExitInWords(crash), "killed by signal 11 (SIGSEGV: invalid memory access), core dumped");
  EXPECT_EQ(ExitInWords(Exited(0, 127)), "exit code 127: command not found");
  EXPECT_EQ(ExitInWords(Exited(0, 3)), "exit code 3: permanent failure: bad data or bad model");
  EXPECT_EQ(ExitInWords(Exited(0, 17)), "exit code 17: retryable failure");
  EXPECT_EQ(ExitInWords(Exited(0, 1)), "exit code 1");
  ExitReport program = Exited(0, 3);
  program.own_trainer = false;
  EXPECT_EQ(ExitInWords(program), "exit code 3");
  ExitReport memory = Killed(0, SIGKILL, ExitReason::kOutOfMemory);
  memory.max_rss_bytes = int64_t{300} << 20;
  EXPECT_EQ(ExitInWords(memory), "killed by the kernel: out of memory (OOMKilled; it held up to 300 MiB)");
  EXPECT_EQ(SignalInWords(SIGRTMIN + 1), "a real-time signal");
}

TEST(ExitReportTest, TheFirstFailureIsTheFirstThatWasNotStopped) {
  EXPECT_EQ(FirstFailure({}), nullptr);
  EXPECT_EQ(FirstFailure({Exited(0, 0), Killed(1, SIGKILL, ExitReason::kStopped), Exited(2, 75)}), nullptr);
  const std::vector<ExitReport> reports = {Killed(3, SIGTERM, ExitReason::kStopped), Exited(1, 1),
                                           Exited(2, 3)};
  EXPECT_EQ(FirstFailure(reports)->rank, 1);
}

TEST(ExitReportTest, ARankThatLostItsPeersGivesWayToTheCause) {
  const std::vector<ExitReport> reports = {Exited(0, 11), Killed(1, SIGSEGV), Exited(2, 11)};
  EXPECT_EQ(FirstFailure(reports)->rank, 1);
  const std::vector<ExitReport> only_lost = {Exited(2, 11), Exited(0, 12)};
  EXPECT_EQ(FirstFailure(only_lost)->rank, 2);
}

TEST(ExitReportTest, AProgramsCode75AndCode11AreFailuresLikeOthers) {
  ExitReport report = Exited(0, 75);
  report.own_trainer = false;
  EXPECT_TRUE(IsFailure(report));
  ExitReport eleven = Exited(1, 11);
  eleven.own_trainer = false;
  const std::vector<ExitReport> reports = {eleven, report};
  EXPECT_EQ(FirstFailure(reports)->rank, 1);
}

TEST(FailureReportTest, SaysWhoWhyTheOthersTheLastLinesAndTheFile) {
  ExitReport crash = Killed(2, SIGSEGV);
  crash.ended = crash.started + milliseconds(12300);
  crash.last_lines = {"step 17", "bad \x1b[2J\ttab"};
  crash.log_file = "runs/mnist/rank-2.log";
  EXPECT_EQ(
      FailureReport({crash, Killed(0, SIGKILL, ExitReason::kStopped), Exited(1, 11),
                     Killed(3, SIGKILL, ExitReason::kStopped)}),
      "rank 2 (worker, pid 4702) failed first, after 12.3 s: killed by signal 11 (SIGSEGV: invalid memory "
      "access)\n"
      "  the other 3 ranks: 1 exit code 11: a peer vanished in a collective, 2 stopped by the launcher\n"
      "  its last lines:\n"
      "    | step 17\n"
      "    | bad ?[2J\ttab\n"
      "  its whole output: runs/mnist/rank-2.log\n");
}

TEST(FailureReportTest, SaysWhereThoseThatHungStoodAndWhereACoreDumpIs) {
  ExitReport hung = Killed(2, SIGKILL);
  hung.core_file = "/src/core.4702";
  hung.stack_lines = {"Thread 1", "#0 \x1b[2J in recv"};
  hung.stack_file = "runs/mnist/stack-rank-2.txt";
  ExitReport other = Killed(3, SIGKILL);
  other.stack_file = "runs/mnist/stack-rank-3.txt";
  EXPECT_THAT(FailureReport({hung, other}),
              ::testing::HasSubstr("\n  its core dump: /src/core.4702\n"
                                   "  where it stood:\n"
                                   "    | Thread 1\n"
                                   "    | #0 ?[2J in recv\n"
                                   "  all stacks of it: runs/mnist/stack-rank-2.txt\n"
                                   "  all stacks of rank 3: runs/mnist/stack-rank-3.txt\n"));
}

TEST(FailureReportTest, SaysWhatBecameOfTheDevice) {
  ExitReport crash = Killed(2, SIGABRT);
  crash.device_trouble = "GPU 2 (GPU-aaaa): Xid 79 (GPU has fallen off the bus)";
  EXPECT_THAT(
      FailureReport({crash}),
      ::testing::HasSubstr("\n  its device: GPU 2 (GPU-aaaa): Xid 79 (GPU has fallen off the bus)\n"));
}

TEST(FailureReportTest, SaysWhatNeverRan) {
  ExitReport absent = Exited(0, 127);
  absent.pid = 0;
  absent.reason = ExitReason::kCannotExecute;
  absent.detail = "trian.py: command not found in PATH (/bin)";
  EXPECT_EQ(
      FailureReport({absent, Exited(1, 0)}),
      "rank 0 (worker, never ran) failed first: exit code 127: trian.py: command not found in PATH (/bin)\n"
      "  the other rank: completed\n");
  EXPECT_EQ(FailureReport({Exited(0, 0)}), "");
}

TEST(LineTailTest, KeepsTheLastTwentyLinesCut) {
  LineTail tail;
  for (int i = 0; i < 50; ++i) tail.Add("line " + std::to_string(i));
  ASSERT_EQ(tail.Lines().size(), 20u);
  EXPECT_EQ(tail.Lines().front(), "line 30");
  EXPECT_EQ(tail.Lines().back(), "line 49");
  tail.Add(std::string(100'000, 'x'));
  EXPECT_EQ(tail.Lines().back().size(), LineTail::kLineBytes);
}

}  // namespace
TEST(LastLineInWordsTest, IsThatOfTheOutputFitForATerminal) {
  ExitReport report;
  EXPECT_EQ(LastLineInWords(report), "");
  report.last_lines = {"Traceback:", "KeyError: 'r\x1b[2Jank'"};
  EXPECT_EQ(LastLineInWords(report), "; its last line: KeyError: 'r?[2Jank'");
  report.last_lines = {std::string(199, 'x') + "é" + std::string(100, 'y')};
  EXPECT_EQ(LastLineInWords(report), "; its last line: " + std::string(199, 'x') + "…");
}

}  // namespace lockstep::process
