#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/telemetry/job_state.h"

namespace lockstep::telemetry {

struct ProgressStyle {
  int width = 80;        // columns; the line is never longer
  bool unicode = false;  // block characters in the bar
  bool color = false;

  // By the environment's LC_ALL, LC_CTYPE, LANG and NO_COLOR (nullptr: not set).
  static ProgressStyle FromEnvironment(int width, const char* lc_all, const char* lc_ctype, const char* lang,
                                       const char* no_color);
};

// For a terminal, without newline or cursor movement:
//   "━━━━━━━━────────  step 120/392  epoch 1  loss 0.3100  mean 0.3300  acc 0.954  90,321 samples/s  41 s
//   left"
// What does not fit is left out, the least important first; before the first step it says what is waited for.
std::string FormatProgressLine(const JobSnapshot& snapshot, const ProgressStyle& style);

// The same without bar and colours, for a file: "step 120/392  epoch 1  loss …".
std::string FormatPlainProgress(const JobSnapshot& snapshot);

// Decides when a line is worth printing: the first step, the end of each epoch (seen at the first step of the
// next one), the last step, and otherwise at most one each `interval`. Pure; not thread-safe.
class ProgressThrottle {
 public:
  explicit ProgressThrottle(std::chrono::steady_clock::duration interval) : interval_(interval) {}

  // True also means that it is taken as printed.
  bool ShouldPrint(int64_t step, int64_t total_steps, int64_t epoch,
                   std::chrono::steady_clock::time_point now);

 private:
  std::chrono::steady_clock::duration interval_;
  std::optional<std::chrono::steady_clock::time_point> last_;
  int64_t last_step_ = -1;
  int64_t last_epoch_ = 0;
};

}  // namespace lockstep::telemetry
