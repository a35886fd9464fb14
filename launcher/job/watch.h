#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/event_loop.h"
#include "launcher/job/log_progress.h"
#include "launcher/process/console.h"
#include "launcher/telemetry/hang_detector.h"
#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/progress_line.h"

namespace lockstep::job {

// Looks after one generation at a time while it runs: takes the ranks' event lines into JobState, shows the
// progress, and finds out when nothing moves any more. On the loop's thread.
class Watch {
 public:
  struct Options {
    telemetry::HangRule hang_rule;
    bool shows_progress = true;
    // A generation hangs: these ranks are to blame, as the message says. Once a generation.
    std::function<void(const telemetry::HangVerdict&)> on_hang;
    // A rank is ready, and says whether it can regroup.
    std::function<void(int rank, bool regroups)> on_ready;
    // A rank says that it waits for the next generation. False: it is not to be believed.
    std::function<bool(int rank, int64_t step)> on_regroup;
  };

  // All outlive this.
  Watch(EventLoop& loop, telemetry::JobState& state, process::Console& console, Options options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // `pids` and `log_patterns` by rank.
  void Begin(std::map<int, int> pids, std::map<int, spec::LogPattern> log_patterns);
  // A rank was started again, the others went on.
  void Again(int rank, int pid);
  void OnEventLine(int rank, std::string_view line);
  void OnOutput(int rank, process::OutputStream stream, std::string_view bytes);
  void End();

 private:
  using Clock = std::chrono::steady_clock;

  void Tick();
  void Apply(int rank, const contract::Event& event);
  void CheckHang();
  void ShowProgress(bool stepped);

  EventLoop& loop_;
  telemetry::JobState& state_;
  process::Console& console_;
  Options options_;
  telemetry::ProgressStyle style_;
  telemetry::ProgressThrottle throttle_{std::chrono::seconds(5)};
  std::map<int, int> pids_;
  LogProgress log_progress_;
  bool running_ = false;
  bool hung_ = false;
  Clock::time_point last_shown_{};
  EventLoop::TimerId tick_timer_ = 0;
  EventLoop::TimerId hang_timer_ = 0;
};

}  // namespace lockstep::job
