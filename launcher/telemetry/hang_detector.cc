#include "launcher/telemetry/hang_detector.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <tuple>

namespace lockstep::telemetry {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kMedianSteps = 20;

bool Announced(RankPhase phase) {
  return phase == RankPhase::kInitializing || phase == RankPhase::kEvaluating ||
         phase == RankPhase::kCheckpointing;
}

// How long this rank may go without progress; empty: for ever.
std::optional<Seconds> LimitOf(const HangRule& rule, const RankProgress& rank, double median_step_seconds) {
  if (rank.phase == RankPhase::kRegrouping) return std::nullopt;  // it waits for the launcher
  if (Announced(rank.phase)) return kAnnouncedPhaseLimit;
  if (!rank.stepped) {
    if (!rule.announces_phases) return std::nullopt;
    // How long a first step may take nothing tells but the manifest.
    if (rank.phase == RankPhase::kTraining && rule.progress_deadline) return *rule.progress_deadline;
    return kAnnouncedPhaseLimit;
  }
  if (rule.progress_deadline) return *rule.progress_deadline;
  return std::max(Seconds(rule.shortest), Seconds(kMedianSteps * median_step_seconds));
}

bool IsStopped(const RankProgress& rank) { return rank.process_state == 'T' || rank.process_state == 't'; }
int64_t StepOf(const RankProgress& rank) { return rank.stepped ? rank.step : -1; }

std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string Where(const RankProgress& rank) {
  std::string text = rank.stepped ? "at step " + std::to_string(rank.step) : "before its first step";
  return text + " (" + (IsStopped(rank) ? "stopped by a signal" : std::string(RankPhaseName(rank.phase))) +
         ")";
}

std::string WhereOthers(int64_t lowest, int64_t highest) {
  if (highest < 0) return ", the others too";
  if (lowest == highest) return ", the others at " + std::to_string(highest);
  return ", the others at " + (lowest < 0 ? "none" : std::to_string(lowest)) + " to " +
         std::to_string(highest);
}

std::string Format(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

HangVerdict Blame(const std::vector<RankProgress>& ranks, const std::string& sign, Clock::time_point now) {
  // Ordered by suspicion; what is equal to the first but for the silence is as suspect.
  const auto suspicion = [](const RankProgress& r) {
    return std::make_tuple(!IsStopped(r), StepOf(r), !Announced(r.phase));
  };
  std::vector<RankProgress> sorted = ranks;
  std::sort(sorted.begin(), sorted.end(), [&](const RankProgress& a, const RankProgress& b) {
    return std::make_tuple(suspicion(a), a.last_progress, a.rank) <
           std::make_tuple(suspicion(b), b.last_progress, b.rank);
  });
  auto end_of_suspects = std::find_if(sorted.begin(), sorted.end(), [&](const RankProgress& r) {
    return suspicion(r) != suspicion(sorted.front());
  });
  // When all are alike, only the silence tells them apart.
  const bool alike = end_of_suspects == sorted.end() && sorted.size() > 1;
  if (alike) end_of_suspects = std::next(sorted.begin());

  HangVerdict verdict;
  for (auto it = sorted.begin(); it != end_of_suspects; ++it) verdict.lagging.push_back(it->rank);
  std::sort(verdict.lagging.begin(), verdict.lagging.end());

  Clock::time_point newest = ranks.front().last_progress;
  for (const RankProgress& rank : ranks) newest = std::max(newest, rank.last_progress);
  verdict.message = "no " + sign + " for " + Format(Seconds(now - newest).count()) + ": ";
  if (alike) {
    verdict.message += "all ranks are " + Where(sorted.front()) + ", " + RankList(verdict.lagging) +
                       " has been silent for longest";
    return verdict;
  }
  verdict.message +=
      RankList(verdict.lagging) + (verdict.lagging.size() == 1 ? " is " : " are ") + Where(sorted.front());
  if (end_of_suspects != sorted.end()) {
    const auto [lowest, highest] = std::minmax_element(
        end_of_suspects, sorted.end(), [](const auto& a, const auto& b) { return StepOf(a) < StepOf(b); });
    verdict.message += WhereOthers(StepOf(*lowest), StepOf(*highest));
  }
  return verdict;
}

}  // namespace

HangRule HangRule::ForTrainer(std::optional<std::chrono::seconds> progress_deadline) {
  return {
      .progress_deadline = progress_deadline, .shortest = std::chrono::seconds(5), .announces_phases = true};
}

HangRule HangRule::ForProgram(std::optional<std::chrono::seconds> progress_deadline) {
  return {
      .progress_deadline = progress_deadline, .shortest = kAnnouncedPhaseLimit, .announces_phases = false};
}

HangAssessment AssessHang(const HangRule& rule, const std::vector<RankProgress>& ranks,
                          double median_step_seconds, Clock::time_point now) {
  // Of a program that tells of no steps.
  const bool by_output =
      !rule.announces_phases && rule.progress_deadline &&
      std::none_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.stepped; });
  std::vector<RankProgress> judged;
  Clock::time_point deadline = Clock::time_point::min();
  for (RankProgress rank : ranks) {
    std::optional<Seconds> limit = LimitOf(rule, rank, median_step_seconds);
    if (by_output && !limit && rank.last_output && rank.phase != RankPhase::kRegrouping) {
      limit = *rule.progress_deadline;
      rank.last_progress = std::max(rank.last_progress, *rank.last_output);
    }
    if (!limit) continue;
    judged.push_back(rank);
    deadline = std::max(deadline, rank.last_progress + std::chrono::ceil<Clock::duration>(*limit));
  }
  if (judged.empty()) return {};
  if (now < deadline) return {.hang = std::nullopt, .next_check = deadline};
  return {.hang = Blame(judged, by_output ? "output" : "step", now), .next_check = std::nullopt};
}

char ReadProcessState(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // After the name, which is in parentheses and may hold anything.
  const size_t end = line.rfind(") ");
  return end == std::string::npos || end + 2 >= line.size() ? '\0' : line[end + 2];
}

}  // namespace lockstep::telemetry
