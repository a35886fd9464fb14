#include "launcher/plugin/status_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "launcher/telemetry/text_format.h"

namespace lockstep::plugin {

using telemetry::FormatBytes;
using telemetry::FormatDuration;
using telemetry::Printable;

namespace {

using Kind = StatusLine::Kind;
using Lines = std::vector<StatusLine>;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string Milliseconds(double seconds) { return seconds <= 0 ? "" : Format("%.2f ms", seconds * 1e3); }

std::string PodState(const PodView& pod) {
  if (pod.pod.delete_by) return "Terminating";
  if (!pod.pod.waiting.empty()) return pod.pod.waiting;
  switch (pod.pod.phase) {
    case op::PodPhase::kPending:
      return pod.pod.scheduled ? "Starting" : "Unscheduled";
    case op::PodPhase::kRunning:
      return pod.ready ? "Ready" : "NotReady";
    case op::PodPhase::kSucceeded:
      return "Succeeded";
    case op::PodPhase::kFailed:
      return pod.pod.exit_reason.empty() ? "Failed" : pod.pod.exit_reason;
  }
  return {};
}

struct Slowest {
  const RankView* rank = nullptr;
  const PodView* pod = nullptr;
  double median = 0;  // of all ranks' own seconds
};

// The rank that the others wait for. Empty with fewer than two that have made a step.
Slowest FindSlowest(const std::vector<PodView>& pods) {
  Slowest slowest;
  std::vector<double> all;
  for (const PodView& pod : pods) {
    for (const RankView& rank : pod.ranks) {
      if (rank.step_seconds <= 0 || !rank.collective_seconds || rank.state != "Running") continue;
      all.push_back(rank.own_seconds());
      if (slowest.rank == nullptr || rank.own_seconds() > slowest.rank->own_seconds()) {
        slowest.rank = &rank;
        slowest.pod = &pod;
      }
    }
  }
  if (all.size() < 2) return {};
  const auto middle = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  slowest.median = *middle;
  return slowest;
}

Lines Head(const JobView& view, op::Time now) {
  const op::ObservedJob& job = view.job;
  const op::JobStatus& status = job.status;
  std::string title = Printable(job.name) + " in " + Printable(job.space) + ": ";
  title += status.phase ? op::PhaseName(*status.phase) : "not seen by an operator yet";
  const bool in_cluster = !job.uid.empty();
  if (in_cluster) title += Format(", attempt %d", status.attempt);
  title += Format(", %d restart%s", status.restarts, status.restarts == 1 ? "" : "s");
  if (status.start_time) {
    const auto seconds = (status.completion_time.value_or(now) - *status.start_time).count();
    title += (status.completion_time ? ", took " : ", for ") + FormatDuration(static_cast<double>(seconds));
  }
  Lines lines = {{title, Kind::kTitle}};
  if (in_cluster) {
    std::string pods = Format("pods: %d of %d ready", status.replicas.ready, status.replicas.desired);
    if (status.replicas.succeeded > 0) pods += Format(", %d succeeded", status.replicas.succeeded);
    if (status.replicas.failed > 0) pods += Format(", %d failed", status.replicas.failed);
    lines.push_back({pods});
  }
  // What holds, and what does not though it should: the newest words on the job's way.
  for (const op::Condition& condition : status.conditions) {
    const bool good = condition.type == op::kScheduled || condition.type == op::kRunning;
    if (condition.status == good || condition.message.empty()) continue;
    if (status.finished() && !condition.status) continue;
    lines.push_back({condition.type + (condition.status ? "" : " is not so") + ": " + condition.reason +
                     ": " + Printable(condition.message)});
  }
  return lines;
}

// An agent's own word is newer than what the operator wrote.
const op::JobProgress* NewestProgress(const JobView& view) {
  const op::JobProgress* progress = view.job.status.progress ? &*view.job.status.progress : nullptr;
  for (const PodView& pod : view.pods) {
    if (!pod.report || !pod.report->progress) continue;
    const op::JobProgress& its = *pod.report->progress;
    // The first one's is the job's.
    return progress == nullptr || its.last_updated >= progress->last_updated ? &its : progress;
  }
  return progress;
}

std::string ProgressText(const op::JobProgress& progress, bool finished, op::Time now) {
  std::string text = Format("step %lld", static_cast<long long>(progress.step));
  if (progress.total_steps) text += Format(" of %lld", static_cast<long long>(*progress.total_steps));
  if (progress.percentage) text += Format(" (%d %%)", *progress.percentage);
  if (!progress.samples_per_second.empty()) text += ", " + progress.samples_per_second + " samples/s";
  if (!progress.loss.empty()) text += ", loss " + progress.loss;
  if (!finished) {
    if (progress.remaining_seconds) {
      text += ", " + FormatDuration(static_cast<double>(*progress.remaining_seconds)) + " left";
    }
    text += ", as of " + FormatDuration(static_cast<double>((now - progress.last_updated).count())) + " ago";
  }
  return Printable(text);
}

// Empty: no replica is left out.
std::string LeftOut(const JobView& view) {
  for (const PodView& pod : view.pods) {
    if (!pod.report) continue;
    std::string text;
    for (const int replica : pod.left_out) text += (text.empty() ? "" : ", ") + std::to_string(replica);
    return text;
  }
  return {};
}

struct Row {
  const PodView* pod = nullptr;
  const RankView* rank = nullptr;  // null: the pod has said nothing of its ranks

  double own_seconds() const { return rank == nullptr ? 0 : rank->own_seconds(); }
  int64_t memory() const { return rank == nullptr ? 0 : rank->memory_bytes.value_or(0); }
};

bool Troubled(const Row& row) {
  if (row.rank == nullptr) return row.pod->pod.phase != op::PodPhase::kSucceeded;
  return row.rank->state != "Running" && row.rank->exit_code.value_or(0) != 0;
}

std::vector<std::string> Cells(const Row& row) {
  const PodView& pod = *row.pod;
  const std::string place = Printable(pod.role) + "-" + std::to_string(pod.pod.index);
  if (row.rank == nullptr) return {"", place, pod.node, PodState(pod), "", "", "", "", ""};
  const RankView& rank = *row.rank;
  std::string state = rank.state == "Running" ? rank.phase : rank.state;
  if (rank.exit_code) state += Format(" (%d)", *rank.exit_code);
  const bool stepped = rank.step_seconds > 0 && rank.collective_seconds;
  return {std::to_string(rank.rank),
          place,
          pod.node,
          Printable(state),
          Printable(rank.device),
          rank.step > 0 ? std::to_string(rank.step) : "",
          Milliseconds(rank.step_seconds),
          stepped ? Milliseconds(rank.own_seconds()) : "",
          rank.memory_bytes ? FormatBytes(*rank.memory_bytes) : ""};
}

std::vector<Row> RowsOf(const JobView& view) {
  std::vector<Row> rows;
  for (const PodView& pod : view.pods) {
    if (pod.ranks.empty()) rows.push_back({.pod = &pod});
    for (const RankView& rank : pod.ranks) rows.push_back({.pod = &pod, .rank = &rank});
  }
  return rows;
}

// Leaves `room` of them: those with trouble, then the slow ones, in the order in which they were.
void Choose(std::vector<Row>& rows, size_t room) {
  std::vector<Row> chosen = rows;
  const auto key = [](const Row& row) { return std::make_pair(Troubled(row) ? 0 : 1, -row.own_seconds()); };
  std::stable_sort(chosen.begin(), chosen.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  chosen.resize(room);
  std::erase_if(rows, [&](const Row& row) {
    return std::none_of(chosen.begin(), chosen.end(),
                        [&](const Row& other) { return other.pod == row.pod && other.rank == row.rank; });
  });
}

Lines Ranks(const JobView& view, int most, RankOrder order) {
  std::vector<Row> rows = RowsOf(view);
  if (rows.empty()) return {};
  const size_t all = rows.size();
  const auto room = static_cast<size_t>(std::max(most, 1));
  if (all > room) Choose(rows, room);
  if (order == RankOrder::kSlowest) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.own_seconds() > b.own_seconds(); });
  } else if (order == RankOrder::kMemory) {
    std::stable_sort(rows.begin(), rows.end(),
                     [](const Row& a, const Row& b) { return a.memory() > b.memory(); });
  }
  std::vector<std::vector<std::string>> cells;
  for (const Row& row : rows) cells.push_back(Cells(row));
  const std::vector<std::string> table = telemetry::FormatTable(
      {"RANK", "REPLICA", "NODE", "STATE", "DEVICE", "STEP", "A STEP", "OF ITS OWN", "MEMORY"}, cells);
  Lines lines = {{table.front(), Kind::kHeading}};
  for (size_t i = 0; i < rows.size(); ++i) {
    lines.push_back({table[i + 1], Troubled(rows[i]) ? Kind::kTrouble : Kind::kPlain});
  }
  if (all > rows.size()) lines.push_back({Format("… and %zu more", all - rows.size())});
  if (view.left_out > 0) lines.push_back({Format("… %d pods were not asked", view.left_out)});
  return lines;
}

void DescribeSlowest(const JobView& view, Lines& notes) {
  const Slowest slowest = FindSlowest(view.pods);
  if (slowest.rank == nullptr) return;
  std::string text = Format("slowest: rank %d (", slowest.rank->rank) + Printable(slowest.pod->role) +
                     Format("-%d", slowest.pod->pod.index);
  if (!slowest.pod->node.empty()) text += " on " + slowest.pod->node;
  text += "): " + Milliseconds(slowest.rank->own_seconds()) + " of its own a step";
  if (slowest.median > 0)
    text += Format(", %.2f times the median", slowest.rank->own_seconds() / slowest.median);
  notes.push_back({text});
}

void DescribeFailure(const JobView& view, Lines& notes) {
  const op::LastFailure* failure = view.job.status.last_failure ? &*view.job.status.last_failure : nullptr;
  for (const PodView& pod : view.pods) {
    if (failure == nullptr && pod.report && pod.report->last_failure) failure = &*pod.report->last_failure;
  }
  if (failure == nullptr) return;
  std::string text = Format("last failure: replica %d", failure->replica);
  if (failure->process) text += Format(", process %d", *failure->process);
  text += ": " + failure->reason;
  if (failure->exit_code) text += Format(" (exit code %d)", *failure->exit_code);
  if (!failure->message.empty()) text += ": " + failure->message;
  notes.push_back({Printable(text), Kind::kTrouble});
}

// Each reason once, with how many pods it holds for.
void DescribeSilence(const JobView& view, Lines& notes) {
  std::map<std::string, int> reasons;
  for (const PodView& pod : view.pods) {
    if (!pod.silent.empty()) ++reasons[pod.silent];
  }
  for (const auto& [reason, count] : reasons) {
    notes.push_back({Format("no word from %d agent%s: ", count, count == 1 ? "" : "s") + Printable(reason)});
  }
}

}  // namespace

StatusText DescribeStatus(const JobView& view, op::Time now, int lines, RankOrder order) {
  StatusText text{.head = Head(view, now), .ranks = Ranks(view, lines, order)};
  if (const op::JobProgress* progress = NewestProgress(view)) {
    const std::optional<op::Phase> phase = view.job.status.phase;
    const bool finished = phase == op::Phase::kSucceeded || phase == op::Phase::kFailed;
    text.head.push_back({ProgressText(*progress, finished, now)});
    text.percentage = progress->percentage;
  }
  if (const std::string replicas = LeftOut(view); !replicas.empty()) {
    text.head.push_back({"goes on without replica " + replicas});
  }
  DescribeSlowest(view, text.notes);
  DescribeFailure(view, text.notes);
  DescribeSilence(view, text.notes);
  return text;
}

std::string RenderStatus(const JobView& view, op::Time now, int lines) {
  const StatusText parts = DescribeStatus(view, now, lines);
  std::string text;
  for (const Lines* part : {&parts.head, &parts.ranks, &parts.notes}) {
    if (!text.empty() && !part->empty()) text += "\n";
    for (const StatusLine& line : *part) text += line.text + "\n";
  }
  return text;
}

}  // namespace lockstep::plugin
