#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "launcher/process/exit_report.h"

// Whether a failed generation is started again. Pure: no clock, no processes.
namespace lockstep::process {

enum class RuleAction { kRestart, kFail, kIgnore };

// One of the manifest's runPolicy.exitCodes.
struct ExitCodeRule {
  std::vector<int> codes;  // empty: any
  std::string reason;      // a ReasonName; empty: any
  RuleAction action = RuleAction::kRestart;
};

struct RestartRules {
  std::vector<ExitCodeRule> exit_codes;  // the first that matches decides, before everything built in
  int max_restarts = 3;                  // since the count was last reset
};

// What the decisions so far leave behind; starts empty.
struct RestartHistory {
  int restarts = 0;                  // since the last reset
  std::map<int, int> out_of_memory;  // by rank: how often it was OOMKilled; never reset
  std::map<int, int> alone;  // by rank: how often it was started again alone, since it last ran for long
};

enum class Verdict {
  kSuccess,      // exit code 0
  kAskedToStop,  // we stopped it, or it says so (75): no failure
  kIgnored,      // by a rule
  kRetryable,
  kPermanent,
};

// One exit by itself. Of the trainer's own codes 2, 3 and 4 are permanent and 10–19 retryable; of a program
// every one is retryable; 126 and 127 are permanent in both, signals retryable, and a rank's second OOMKilled
// is permanent. `history` is of the restarts before this exit.
Verdict Judge(const ExitReport& report, const RestartRules& rules, const RestartHistory& history);

struct Decision {
  enum class Action { kRestart, kFail, kIgnore };
  Action action = Action::kIgnore;     // kIgnore: no failure among the reports; let the rest run
  std::chrono::milliseconds delay{0};  // kRestart: 0, 1, 2, 4 … 30 s
  int exit_code = 0;                   // kFail: what `lockstep run` ends with
  std::string why;                     // one line: "rank 2: exit code 3 … is permanent"
  RestartHistory history;              // to be kept for the next decision
};

// `reports` in the order of exits; `progress` is how long the generation made progress (first to last step):
// ten minutes of it reset the count of restarts.
Decision Decide(const std::vector<ExitReport>& reports, const RestartRules& rules,
                const RestartHistory& history, std::chrono::milliseconds progress);

// As Decide(), of one process that is started again while the others go on: it backs off by its own restarts,
// and those of all processes together count against max_restarts. `ran`: since it was last started; ten
// minutes reset its count. One that was asked to stop by somebody else is started again, too.
Decision DecideAlone(const ExitReport& report, const RestartRules& rules, const RestartHistory& history,
                     std::chrono::milliseconds ran);

}  // namespace lockstep::process
