#include "launcher/process/restart_policy.h"

#include <algorithm>

#include "common/contract/exit_codes.h"

namespace lockstep::process {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kProgressThatResets = std::chrono::minutes(10);
constexpr int kOutOfMemoryLimit = 2;

// 0, 1, 2, 4, 8, 16, 30, 30 … seconds.
milliseconds Backoff(int restarts) {
  if (restarts == 0) return milliseconds(0);
  return std::min<seconds>(seconds(30), seconds(1 << std::min(restarts - 1, 5)));
}

const ExitCodeRule* FindRule(const ExitReport& report, const RestartRules& rules) {
  for (const ExitCodeRule& rule : rules.exit_codes) {
    const bool code_matches = rule.codes.empty() || std::find(rule.codes.begin(), rule.codes.end(),
                                                              report.exit_code) != rule.codes.end();
    const bool reason_matches = rule.reason.empty() || rule.reason == ReasonName(report.reason);
    if (code_matches && reason_matches) return &rule;
  }
  return nullptr;
}

int OutOfMemoryBefore(const RestartHistory& history, int rank) {
  const auto it = history.out_of_memory.find(rank);
  return it == history.out_of_memory.end() ? 0 : it->second;
}

std::string Why(const ExitReport& report, const RestartRules& rules, const RestartHistory& history) {
  std::string why =
      report.message.empty() ? RankInWords(report) + ": " + ExitInWords(report) : report.message;
  if (FindRule(report, rules) != nullptr) return why + "; so says exitCodes";
  if (report.reason == ExitReason::kOutOfMemory &&
      OutOfMemoryBefore(history, report.rank) + 1 >= kOutOfMemoryLimit) {
    why += "; for the second time: a restart would not help";
  }
  return why;
}

std::string UsedUp(const RestartRules& rules) {
  return "; " + std::to_string(rules.max_restarts) + " restarts are used up (maxRestarts)";
}

}  // namespace

Verdict Judge(const ExitReport& report, const RestartRules& rules, const RestartHistory& history) {
  if (report.reason == ExitReason::kCompleted) return Verdict::kSuccess;
  if (!IsFailure(report)) return Verdict::kAskedToStop;
  if (const ExitCodeRule* rule = FindRule(report, rules); rule != nullptr) {
    switch (rule->action) {
      case RuleAction::kRestart:
        return Verdict::kRetryable;
      case RuleAction::kFail:
        return Verdict::kPermanent;
      case RuleAction::kIgnore:
        return Verdict::kIgnored;
    }
  }
  switch (report.reason) {
    case ExitReason::kCannotExecute:
      return Verdict::kPermanent;
    case ExitReason::kOutOfMemory:
      return OutOfMemoryBefore(history, report.rank) + 1 >= kOutOfMemoryLimit ? Verdict::kPermanent
                                                                              : Verdict::kRetryable;
    case ExitReason::kSignal:
    case ExitReason::kNotStarted:
      return Verdict::kRetryable;
    default:
      break;
  }
  const int code = report.exit_code;
  if (code == contract::kExitCannotExecute || code == contract::kExitNotFound) return Verdict::kPermanent;
  const bool permanent_of_trainer =
      code == contract::kExitUsage || code == contract::kExitPermanent || code == contract::kExitSuperseded;
  return report.own_trainer && permanent_of_trainer ? Verdict::kPermanent : Verdict::kRetryable;
}

Decision Decide(const std::vector<ExitReport>& reports, const RestartRules& rules,
                const RestartHistory& history, milliseconds progress) {
  Decision decision;
  decision.history = history;
  if (progress >= kProgressThatResets) decision.history.restarts = 0;

  std::vector<ExitReport> failures;
  for (const ExitReport& report : reports) {
    const Verdict verdict = Judge(report, rules, history);
    if (verdict == Verdict::kRetryable || verdict == Verdict::kPermanent) failures.push_back(report);
    if (report.reason == ExitReason::kOutOfMemory) ++decision.history.out_of_memory[report.rank];
  }
  const ExitReport* const first = FirstFailure(failures);
  if (first == nullptr) return decision;

  decision.why = Why(*first, rules, history);
  decision.exit_code = first->exit_code;
  if (Judge(*first, rules, history) == Verdict::kPermanent) {
    decision.action = Decision::Action::kFail;
    decision.why += LastLineInWords(*first);
    return decision;
  }
  if (decision.history.restarts >= rules.max_restarts) {
    decision.action = Decision::Action::kFail;
    decision.why += UsedUp(rules) + LastLineInWords(*first);
    return decision;
  }
  decision.action = Decision::Action::kRestart;
  decision.delay = Backoff(decision.history.restarts);
  ++decision.history.restarts;
  return decision;
}

Decision DecideAlone(const ExitReport& report, const RestartRules& rules, const RestartHistory& history,
                     milliseconds ran) {
  Decision decision;
  decision.history = history;
  const Verdict verdict = Judge(report, rules, history);
  if (verdict == Verdict::kSuccess || verdict == Verdict::kIgnored) return decision;
  int& own = decision.history.alone[report.rank];
  if (ran >= kProgressThatResets) own = 0;
  if (report.reason == ExitReason::kOutOfMemory) ++decision.history.out_of_memory[report.rank];
  int all = decision.history.restarts;
  for (const auto& [rank, restarts] : decision.history.alone) all += restarts;

  decision.action = Decision::Action::kFail;
  decision.exit_code = report.exit_code;
  decision.why = Why(report, rules, history);
  if (verdict == Verdict::kPermanent || all >= rules.max_restarts) {
    if (verdict != Verdict::kPermanent) decision.why += UsedUp(rules);
    decision.why += LastLineInWords(report);
    return decision;
  }
  decision.action = Decision::Action::kRestart;
  decision.delay = Backoff(own++);
  return decision;
}

}  // namespace lockstep::process
