#include "launcher/job/watch.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/contract/event.h"
#include "common/log.h"

namespace lockstep::job {

namespace {

constexpr auto kShowInterval = std::chrono::milliseconds(100);

int TerminalWidth() {
  winsize size{};
  for (const int fd : {STDERR_FILENO, STDOUT_FILENO}) {
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  }
  return 80;
}

log::Fields FieldsOf(const telemetry::Progress& progress) {
  log::Fields fields = {{"step", progress.step}, {"epoch", progress.epoch}};
  if (progress.total_steps > 0) fields.emplace_back("totalSteps", progress.total_steps);
  if (progress.loss) fields.emplace_back("loss", *progress.loss);
  if (progress.accuracy) fields.emplace_back("accuracy", *progress.accuracy);
  if (progress.samples_per_second) fields.emplace_back("samplesPerSecond", *progress.samples_per_second);
  return fields;
}

}  // namespace

Watch::Watch(EventLoop& loop, telemetry::JobState& state, process::Console& console, Options options)
    : loop_(loop),
      state_(state),
      console_(console),
      options_(std::move(options)),
      style_(telemetry::ProgressStyle::FromEnvironment(TerminalWidth(), std::getenv("LC_ALL"),
                                                       std::getenv("LC_CTYPE"), std::getenv("LANG"),
                                                       std::getenv("NO_COLOR"))) {
  Tick();
}

Watch::~Watch() {
  End();
  loop_.Cancel(tick_timer_);
}

void Watch::Begin(std::map<int, int> pids, std::map<int, spec::LogPattern> log_patterns) {
  pids_ = std::move(pids);
  log_progress_ = LogProgress(std::move(log_patterns));
  running_ = true;
  hung_ = false;
  CheckHang();
}

void Watch::Again(int rank, int pid) {
  pids_[rank] = pid;
  hung_ = false;
  if (running_) CheckHang();
}

void Watch::End() {
  running_ = false;
  loop_.Cancel(std::exchange(hang_timer_, 0));
  console_.SetStatusLine("");
}

// The only thing the launcher does while nothing happens.
void Watch::Tick() {
  state_.Tick(Clock::now());
  if (running_) ShowProgress(/*stepped=*/false);
  tick_timer_ = loop_.After(telemetry::kTickInterval, [this] { Tick(); });
}

void Watch::OnEventLine(int rank, std::string_view line) {
  const Result<contract::Event> event = contract::ParseEvent(line);
  if (!event.ok()) return state_.MalformedEvent(rank);
  if (const auto* ready = std::get_if<contract::ReadyEvent>(&*event))
    options_.on_ready(rank, ready->regroups);
  const auto* regroup = std::get_if<contract::RegroupEvent>(&*event);
  if (regroup != nullptr && !options_.on_regroup(rank, regroup->step)) return state_.MalformedEvent(rank);
  Apply(rank, *event);
}

void Watch::OnOutput(int rank, process::OutputStream stream, std::string_view bytes) {
  const auto now = Clock::now();
  const telemetry::HangRule& rule = options_.hang_rule;
  if (rule.progress_deadline && !rule.announces_phases) {
    state_.Wrote(rank, now);
    if (hang_timer_ == 0) CheckHang();  // its first sign
  }
  if (auto step = log_progress_.Read(rank, stream, bytes, now)) Apply(rank, *step);
}

void Watch::Apply(int rank, const contract::Event& event) {
  state_.ApplyEvent(rank, event, Clock::now());
  const bool stepped = std::holds_alternative<contract::StepEvent>(event);
  if (stepped) ShowProgress(/*stepped=*/true);
  // A step only moves the deadline on, which the pending check finds out by itself; anything else may bring
  // it forward. A first step ends the state in which there is nothing to check.
  if (running_ && (!stepped || hang_timer_ == 0)) CheckHang();
}

void Watch::CheckHang() {
  loop_.Cancel(std::exchange(hang_timer_, 0));
  if (!running_ || hung_) return;
  const auto now = Clock::now();
  std::vector<telemetry::RankProgress> ranks = state_.rank_progress();
  for (telemetry::RankProgress& rank : ranks) {
    const auto pid = pids_.find(rank.rank);
    if (pid != pids_.end()) rank.process_state = telemetry::ReadProcessState(pid->second);
  }
  const auto assessment = telemetry::AssessHang(options_.hang_rule, ranks, state_.median_step_seconds(), now);
  if (assessment.hang) {
    hung_ = true;
    options_.on_hang(*assessment.hang);
  } else if (assessment.next_check) {
    hang_timer_ = loop_.After(*assessment.next_check - now, [this] {
      hang_timer_ = 0;
      CheckHang();
    });
  }
}

void Watch::ShowProgress(bool stepped) {
  if (!options_.shows_progress) return;
  const auto now = Clock::now();
  if (console_.has_status_line()) {
    if (now - last_shown_ < kShowInterval) return;
    last_shown_ = now;
    style_.width = TerminalWidth();
    console_.SetStatusLine(telemetry::FormatProgressLine(state_.Snapshot(now), style_));
  } else if (stepped) {
    // (Most steps are not worth a line, and a whole snapshot would be dear.)
    const auto at = state_.progress();
    if (!at || !throttle_.ShouldPrint(at->step, at->total_steps, at->epoch, now)) return;
    const telemetry::JobSnapshot snapshot = state_.Snapshot(now);
    const std::string text = telemetry::FormatPlainProgress(snapshot);
    const bool json = log::format() == log::Format::kJson;
    console_.Write(
        process::OutputStream::kStderr,
        (json ? log::JsonLine(log::Level::kInfo, "lockstep", text, FieldsOf(*snapshot.progress)) : text) +
            "\n");
  }
}

}  // namespace lockstep::job
