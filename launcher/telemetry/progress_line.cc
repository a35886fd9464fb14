#include "launcher/telemetry/progress_line.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "launcher/telemetry/text_format.h"

namespace lockstep::telemetry {

namespace {

constexpr size_t kShortestBar = 8;
constexpr size_t kLongestBar = 30;
constexpr std::string_view kGap = "  ";

struct Field {
  std::string text;
  int importance;  // the lowest goes first when there is no room
};

// Columns of UTF-8 whose characters are all one wide.
size_t Width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string Truncate(const std::string& text, size_t width) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80 && columns++ == width) return text.substr(0, i);
  }
  return text;
}

// "rank 2 Evaluating", "2 ranks Regrouping": those that do not train while others do. Empty: all are alike.
std::string OthersText(const std::vector<RankSnapshot>& ranks) {
  std::map<RankPhase, std::vector<int>> by_phase;
  for (const RankSnapshot& rank : ranks) {
    if (rank.state == RankState::kRunning && rank.identity.steps) {
      by_phase[rank.phase].push_back(rank.identity.rank);
    }
  }
  if (by_phase.size() < 2) return {};
  by_phase.erase(RankPhase::kTraining);
  const auto& [phase, those] = *by_phase.begin();
  const std::string who =
      those.size() == 1 ? "rank " + std::to_string(those.front()) : std::to_string(those.size()) + " ranks";
  return who + " " + std::string(RankPhaseName(phase));
}

std::vector<Field> FieldsOf(const JobSnapshot& snapshot) {
  const Progress& progress = *snapshot.progress;
  const bool running = snapshot.phase == JobPhase::kRunning;
  std::vector<Field> fields;
  const std::string total = progress.total_steps > 0 ? "/" + std::to_string(progress.total_steps) : "";
  fields.push_back({"step " + std::to_string(progress.step) + total, 6});
  fields.push_back({"epoch " + std::to_string(progress.epoch + 1), 2});
  if (progress.loss) fields.push_back({"loss " + FormatLoss(*progress.loss), 5});
  if (progress.loss_average) fields.push_back({"mean " + FormatLoss(*progress.loss_average), 0});
  if (progress.accuracy) fields.push_back({"acc " + FormatDecimals(*progress.accuracy, 4), 1});
  if (progress.samples_per_second.value_or(0) > 0) {
    fields.push_back({Grouped(std::llround(std::min(*progress.samples_per_second, 1e15))) + " samples/s", 3});
  }
  if (running && progress.remaining_seconds)
    fields.push_back({FormatDuration(*progress.remaining_seconds) + " left", 4});
  if (const std::string others = OthersText(snapshot.ranks); running && !others.empty()) {
    fields.push_back({others, 5});
  }
  return fields;
}

size_t TotalWidth(const std::vector<Field>& fields) {
  size_t width = 0;
  for (const Field& field : fields) width += Width(field.text) + (width == 0 ? 0 : kGap.size());
  return width;
}

std::string Join(const std::vector<Field>& fields) {
  std::string line;
  for (const Field& field : fields) line += (line.empty() ? "" : std::string(kGap)) + field.text;
  return line;
}

std::string Bar(double share, size_t width, const ProgressStyle& style) {
  const auto filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
  std::string done;
  std::string rest;
  for (size_t i = 0; i < width; ++i) {
    if (i < filled) {
      done += style.unicode ? "━" : "=";
    } else {
      rest += style.unicode ? "─" : "-";
    }
  }
  if (style.color) return "\x1b[32m" + done + "\x1b[0m\x1b[2m" + rest + "\x1b[0m";
  return style.unicode ? done + rest : "[" + done + rest + "]";
}

// What to say while there is no step to show.
std::string WaitingText(const JobSnapshot& snapshot) {
  if (snapshot.resizing) return "going on with other replicas";
  if (snapshot.phase == JobPhase::kRestarting) {
    const std::string why = snapshot.last_failure ? ": " + Printable(snapshot.last_failure->message) : "";
    return "restart " + std::to_string(snapshot.restarts) + why;
  }
  size_t running = 0;
  RankPhase phase = RankPhase::kTraining;
  for (const RankSnapshot& rank : snapshot.ranks) {
    if (rank.state == RankState::kRunning) ++running;
    phase = std::min(phase, rank.phase);
  }
  if (running < snapshot.ranks.size() || running == 0) {
    return "starting, " + std::to_string(running) + " of " + std::to_string(snapshot.ranks.size()) +
           " processes run";
  }
  if (phase == RankPhase::kTraining) return "waiting for the first step";
  return std::to_string(running) + (running == 1 ? " process is " : " processes are ") +
         (phase == RankPhase::kInitializing ? "initializing" : "running");
}

bool HasProgress(const JobSnapshot& snapshot) {
  return snapshot.progress && snapshot.phase != JobPhase::kRestarting;
}

bool SaysUtf8(const char* value) {
  std::string upper(value);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return upper.find("UTF-8") != std::string::npos || upper.find("UTF8") != std::string::npos;
}

}  // namespace

ProgressStyle ProgressStyle::FromEnvironment(int width, const char* lc_all, const char* lc_ctype,
                                             const char* lang, const char* no_color) {
  ProgressStyle style{.width = width, .unicode = false, .color = no_color == nullptr || *no_color == '\0'};
  for (const char* value :
       {lc_all, lc_ctype, lang}) {  // the first that is set and not empty decides (locale(7))
    if (value == nullptr || *value == '\0') continue;
    style.unicode = SaysUtf8(value);
    break;
  }
  return style;
}

std::string FormatProgressLine(const JobSnapshot& snapshot, const ProgressStyle& style) {
  const auto width = static_cast<size_t>(std::max(0, style.width));
  if (!HasProgress(snapshot)) return Truncate(WaitingText(snapshot), width);

  const Progress& progress = *snapshot.progress;
  std::vector<Field> fields = FieldsOf(snapshot);
  const auto drop_least = [&] {
    fields.erase(std::min_element(fields.begin(), fields.end(), [](const Field& a, const Field& b) {
      return a.importance < b.importance;
    }));
  };
  while (fields.size() > 1 && TotalWidth(fields) > width) drop_least();

  const size_t brackets = style.unicode || style.color ? 0 : 2;
  const size_t taken = TotalWidth(fields) + kGap.size() + brackets;
  if (progress.total_steps == 0 || taken + kShortestBar > width) return Truncate(Join(fields), width);
  const double share = static_cast<double>(progress.step) / static_cast<double>(progress.total_steps);
  return Bar(share, std::min(kLongestBar, width - taken), style) + std::string(kGap) + Join(fields);
}

std::string FormatPlainProgress(const JobSnapshot& snapshot) {
  if (!HasProgress(snapshot)) return WaitingText(snapshot);
  return Join(FieldsOf(snapshot));
}

bool ProgressThrottle::ShouldPrint(int64_t step, int64_t total_steps, int64_t epoch,
                                   std::chrono::steady_clock::time_point now) {
  if (step == last_step_) return false;
  const bool remarkable = !last_ || epoch != last_epoch_ || (total_steps > 0 && step >= total_steps);
  if (!remarkable && now - *last_ < interval_) return false;
  last_ = now;
  last_step_ = step;
  last_epoch_ = epoch;
  return true;
}

}  // namespace lockstep::telemetry
