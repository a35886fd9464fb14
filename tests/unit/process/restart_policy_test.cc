#include "launcher/process/restart_policy.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::process {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

ExitReport Exited(int code, bool own_trainer = true, int rank = 0) {
  ExitReport report;
  report.rank = rank;
  report.own_trainer = own_trainer;
  report.exit_code = code;
  report.reason = code == 0 ? ExitReason::kCompleted : ExitReason::kError;
  return report;
}

ExitReport Killed(int signal, ExitReason reason = ExitReason::kSignal, int rank = 0) {
  ExitReport report = Exited(128 + signal, true, rank);
  report.signal = signal;
  report.reason = reason;
  report.asked_to_stop = reason == ExitReason::kStopped;
  return report;
}

ExitReport NeverRan(int code, ExitReason reason) {
  ExitReport report = Exited(code);
  report.reason = reason;
  return report;
}

TEST(RestartPolicyTest, JudgesEachKindOfExit) {
  struct Case {
    const char* name;
    ExitReport report;
    Verdict verdict;
  };
  const Case cases[] = {
      {"trainer done", Exited(0), Verdict::kSuccess},
      {"trainer usage", Exited(2), Verdict::kPermanent},
      {"trainer permanent", Exited(3), Verdict::kPermanent},
      {"trainer superseded", Exited(4), Verdict::kPermanent},
      {"a program's 4", Exited(4, false), Verdict::kRetryable},
      {"trainer retryable", Exited(10), Verdict::kRetryable},
      {"trainer collective lost", Exited(11), Verdict::kRetryable},
      {"trainer last retryable", Exited(19), Verdict::kRetryable},
      {"trainer other", Exited(1), Verdict::kRetryable},
      {"trainer checkpointed", Exited(75), Verdict::kAskedToStop},
      {"program 2", Exited(2, false), Verdict::kRetryable},
      {"program 3", Exited(3, false), Verdict::kRetryable},
      {"program 75", Exited(75, false), Verdict::kRetryable},
      {"126", Exited(126, false), Verdict::kPermanent},
      {"127", Exited(127, false), Verdict::kPermanent},
      {"crash", Killed(SIGSEGV), Verdict::kRetryable},
      {"killed by somebody", Killed(SIGKILL), Verdict::kRetryable},
      {"stopped by us", Killed(SIGKILL, ExitReason::kStopped), Verdict::kAskedToStop},
      {"out of memory", Killed(SIGKILL, ExitReason::kOutOfMemory), Verdict::kRetryable},
      {"not executable", NeverRan(126, ExitReason::kCannotExecute), Verdict::kPermanent},
      {"machine full", NeverRan(10, ExitReason::kNotStarted), Verdict::kRetryable},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(static_cast<int>(Judge(test.report, {}, {})), static_cast<int>(test.verdict)) << test.name;
  }
}

TEST(RestartPolicyTest, TheFirstMatchingRuleDecidesBeforeWhatIsBuiltIn) {
  RestartRules rules;
  rules.exit_codes = {{.codes = {3}, .action = RuleAction::kRestart},
                      {.codes = {137}, .reason = "OOMKilled", .action = RuleAction::kFail},
                      {.codes = {137, 4}, .action = RuleAction::kIgnore},
                      {.reason = "Signal", .action = RuleAction::kFail}};
  EXPECT_EQ(Judge(Exited(3), rules, {}), Verdict::kRetryable);
  EXPECT_EQ(Judge(Killed(SIGKILL, ExitReason::kOutOfMemory), rules, {}), Verdict::kPermanent);
  EXPECT_EQ(Judge(Killed(SIGKILL), rules, {}), Verdict::kIgnored);
  EXPECT_EQ(Judge(Exited(4), rules, {}), Verdict::kIgnored);
  EXPECT_EQ(Judge(Killed(SIGSEGV), rules, {}), Verdict::kPermanent);
  EXPECT_EQ(Judge(Killed(SIGKILL, ExitReason::kStopped), rules, {}), Verdict::kAskedToStop);
}

TEST(RestartPolicyTest, TheFirstRestartIsImmediateAndLaterOnesBackOff) {
  RestartRules rules;
  rules.max_restarts = 100;
  RestartHistory history;
  for (const int expected : {0, 1, 2, 4, 8, 16, 30, 30, 30}) {
    const Decision decision = Decide({Exited(1)}, rules, history, milliseconds(0));
    ASSERT_EQ(decision.action, Decision::Action::kRestart);
    EXPECT_EQ(decision.delay, seconds(expected));
    history = decision.history;
  }
}

TEST(RestartPolicyTest, TenMinutesOfProgressResetTheCount) {
  RestartHistory history;
  history.restarts = 3;
  EXPECT_EQ(Decide({Exited(1)}, {}, history, minutes(10) - milliseconds(1)).action, Decision::Action::kFail);
  const Decision decision = Decide({Exited(1)}, {}, history, minutes(10));
  EXPECT_EQ(decision.action, Decision::Action::kRestart);
  EXPECT_EQ(decision.delay, seconds(0));
  EXPECT_EQ(decision.history.restarts, 1);
}

TEST(RestartPolicyTest, FailsWithTheCodeOfTheFirstFailureWhenRestartsAreUsedUp) {
  RestartHistory history;
  history.restarts = 3;
  const Decision decision =
      Decide({Exited(11, true, 0), Killed(SIGSEGV, ExitReason::kSignal, 1)}, {}, history, {});
  EXPECT_EQ(decision.action, Decision::Action::kFail);
  EXPECT_EQ(decision.exit_code, 139);
  EXPECT_NE(decision.why.find("rank 1: killed by signal 11"), std::string::npos) << decision.why;
  EXPECT_NE(decision.why.find("maxRestarts"), std::string::npos) << decision.why;
}

TEST(RestartPolicyTest, TheSameRankOutOfMemoryTwiceIsPermanent) {
  const ExitReport rank1 = Killed(SIGKILL, ExitReason::kOutOfMemory, 1);
  const Decision first = Decide({rank1}, {}, {}, {});
  EXPECT_EQ(first.action, Decision::Action::kRestart);
  EXPECT_EQ(Decide({Killed(SIGKILL, ExitReason::kOutOfMemory, 2)}, {}, first.history, {}).action,
            Decision::Action::kRestart);
  const Decision second = Decide({rank1}, {}, first.history, minutes(60));
  EXPECT_EQ(second.action, Decision::Action::kFail);
  EXPECT_EQ(second.exit_code, 137);
  EXPECT_NE(second.why.find("second time"), std::string::npos) << second.why;
}

TEST(RestartPolicyTest, NothingIsDecidedWithoutAFailure) {
  RestartRules rules;
  rules.exit_codes = {{.codes = {4}, .action = RuleAction::kIgnore}};
  const Decision decision =
      Decide({Exited(0), Exited(75), Exited(4), Killed(SIGKILL, ExitReason::kStopped)}, rules, {}, {});
  EXPECT_EQ(decision.action, Decision::Action::kIgnore);
  EXPECT_EQ(decision.history.restarts, 0);
}

TEST(RestartPolicyTest, NoRestartsAreAllowedByZero) {
  RestartRules rules;
  rules.max_restarts = 0;
  EXPECT_EQ(Decide({Exited(10)}, rules, {}, {}).action, Decision::Action::kFail);
}

TEST(RestartAloneTest, BacksOffByItsOwnRestartsAndAllCountTogether) {
  const RestartRules rules{.exit_codes = {}, .max_restarts = 3};
  RestartHistory history;
  const auto decide = [&](int rank, milliseconds ran) {
    const Decision decision = DecideAlone(Exited(9, false, rank), rules, history, ran);
    history = decision.history;
    return decision;
  };
  EXPECT_EQ(decide(1, seconds(5)).delay, seconds(0));
  EXPECT_EQ(decide(1, seconds(5)).delay, seconds(1));
  EXPECT_EQ(decide(2, seconds(5)).delay, seconds(0));
  const Decision last = decide(3, seconds(5));
  EXPECT_EQ(last.action, Decision::Action::kFail);
  EXPECT_EQ(last.exit_code, 9);
  EXPECT_NE(last.why.find("3 restarts are used up"), std::string::npos);
  // One that ran for long is as new, and leaves room for others.
  EXPECT_EQ(decide(1, minutes(10)).delay, seconds(0));
  EXPECT_EQ(decide(2, seconds(5)).action, Decision::Action::kRestart);
  EXPECT_EQ(decide(2, seconds(5)).action, Decision::Action::kFail);
}

TEST(RestartAloneTest, StartsAgainWhoWasAskedToStopByOthersAndNotWhoIsDone) {
  const RestartRules rules;
  EXPECT_EQ(DecideAlone(Exited(75), rules, {}, seconds(1)).action, Decision::Action::kRestart);
  EXPECT_EQ(DecideAlone(Exited(0), rules, {}, seconds(1)).action, Decision::Action::kIgnore);
  EXPECT_EQ(DecideAlone(Exited(3), rules, {}, seconds(1)).action, Decision::Action::kFail);
  RestartHistory once;
  once.out_of_memory[0] = 1;
  EXPECT_EQ(DecideAlone(Killed(SIGKILL, ExitReason::kOutOfMemory), rules, once, seconds(1)).action,
            Decision::Action::kFail);
}

}  // namespace
}  // namespace lockstep::process
