#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/telemetry/rank_phase.h"

namespace lockstep::telemetry {

// The rule for a job that no longer moves: no step for `progress_deadline`. Where that is not given, 20
// median steps, but at least `shortest`. Initializing, Evaluating and Checkpointing announce themselves and
// have 300 s each.
//
// For the trainer `shortest` is 5 s. For a program, which need not announce its evaluations, it is 300 s,
// after its first step. As long as no rank of a program has told of a step, those that have written something
// must go on writing: it is hung when none has for a `progress_deadline` that was given.
struct HangRule {
  std::optional<std::chrono::seconds> progress_deadline;  // runPolicy.progressDeadlineSeconds
  std::chrono::seconds shortest{5};
  bool announces_phases = true;  // false for a program

  static HangRule ForTrainer(std::optional<std::chrono::seconds> progress_deadline);
  static HangRule ForProgram(std::optional<std::chrono::seconds> progress_deadline);
};

inline constexpr std::chrono::seconds kAnnouncedPhaseLimit{300};

// One live rank of this generation.
struct RankProgress {
  int rank = 0;
  RankPhase phase = RankPhase::kStarting;
  int64_t step = 0;                                       // the last one reported
  bool stepped = false;                                   // in this generation
  std::chrono::steady_clock::time_point last_progress{};  // start, last step, or last change of phase
  std::optional<std::chrono::steady_clock::time_point> last_output = {};  // on standard output or error
  // The letter of /proc/PID/stat, where the caller looked: a stopped rank (T) is to blame before all others.
  // 0: unknown.
  char process_state = 0;
};

struct HangVerdict {
  std::vector<int> lagging;  // at least one
  std::string message;       // "no step for 5.0 s: rank 2 is at step 117 (Training), the others at 118"
};

struct HangAssessment {
  std::optional<HangVerdict> hang;
  // When to ask again; empty: not before something changes (a first step, a new phase). Set unless `hang` is.
  std::optional<std::chrono::steady_clock::time_point> next_check;
};

// Pure. In lockstep all ranks stop soon after the one that hangs, and some wait in good faith while another
// evaluates or writes a checkpoint: the job hangs when *every* live rank is past its own limit. The one to
// blame is, in this order, stopped by a signal, behind in steps, busy with something else than training, or
// silent for longest.
HangAssessment AssessHang(const HangRule& rule, const std::vector<RankProgress>& ranks,
                          double median_step_seconds, std::chrono::steady_clock::time_point now);

// The state letter of a process; 0 when it can't be read.
char ReadProcessState(int pid);

}  // namespace lockstep::telemetry
