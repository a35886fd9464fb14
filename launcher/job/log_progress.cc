#include "launcher/job/log_progress.h"

#include <algorithm>
#include <utility>

namespace lockstep::job {

namespace {

constexpr size_t kMaxLine = 16 * 1024;  // of a longer one the end counts
constexpr int64_t kMost = int64_t{1} << 60;

}  // namespace

LogProgress::LogProgress(std::map<int, spec::LogPattern> patterns) {
  for (auto& [rank, pattern] : patterns) ranks_.emplace(rank, Rank(std::move(pattern)));
}

int64_t LogProgress::Count::Grown(int64_t now) {
  const int64_t was = value();
  if (now < last) before = std::min(before + last, kMost);
  last = now;
  return value() - was;
}

std::optional<contract::StepEvent> LogProgress::Read(int rank, process::OutputStream stream,
                                                     std::string_view bytes, Time now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return std::nullopt;
  Rank& from = found->second;
  std::string& partial = from.partial[static_cast<size_t>(stream)];
  std::optional<contract::StepEvent> event;
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    partial += bytes.substr(0, end);
    if (partial.size() > kMaxLine) partial.erase(0, partial.size() - kMaxLine);
    if (end == std::string_view::npos) break;
    if (!partial.empty()) ReadLine(from, partial, event);
    partial.clear();
    bytes.remove_prefix(end + 1);
  }
  if (!event) {
    if (from.began && from.last == Time{}) from.last = now;
    return event;
  }
  if (from.last != Time{}) event->seconds = std::chrono::duration<double>(now - from.last).count();
  from.last = now;
  return event;
}

void LogProgress::ReadLine(Rank& rank, std::string_view line, std::optional<contract::StepEvent>& event) {
  const std::optional<spec::LogStep> read = rank.pattern.Match(line);
  if (!read) return;
  const int64_t steps = rank.step.Grown(read->step);
  const int64_t samples = read->samples ? rank.samples.Grown(*read->samples) : 0;
  // It may have been resumed: how many steps the first line stands for it does not say.
  const bool first = !std::exchange(rank.began, true);
  if (steps == 0) return;
  // Most count epochs from 1, events do from 0.
  rank.epochs_from_zero = rank.epochs_from_zero || read->epoch == 0;
  const int64_t epoch = read->epoch.value_or(1);
  contract::StepEvent next{.step = rank.step.value(),
                           .steps = first ? 1 : steps,
                           .total_steps = read->total.value_or(0),
                           .epoch = rank.epochs_from_zero ? epoch : epoch - 1,
                           .samples = first ? 0 : samples,
                           .loss = read->loss};
  if (event) {
    next.steps += event->steps;
    next.samples += event->samples;
  }
  event = next;
}

}  // namespace lockstep::job
