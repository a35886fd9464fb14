#include "launcher/process/failure_report.h"

#include <cstdio>
#include <map>

namespace lockstep::process {

namespace {

std::string Seconds(std::chrono::system_clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string EndOf(const ExitReport& report) {
  if (report.reason == ExitReason::kCompleted) return "completed";
  if (report.reason == ExitReason::kStopped) return "stopped by the launcher";
  if (report.reason == ExitReason::kCannotExecute || report.reason == ExitReason::kNotStarted)
    return "not started";
  return ExitInWords(report);
}

// "the other 3 ranks: 2 stopped by the launcher, 1 exit code 11: …"
std::string Others(const std::vector<ExitReport>& reports, const ExitReport& first) {
  std::map<std::string, int> counts;
  for (const ExitReport& report : reports) {
    if (&report != &first) ++counts[EndOf(report)];
  }
  if (counts.empty()) return {};
  const size_t others = reports.size() - 1;
  std::string line = others == 1 ? "  the other rank:" : "  the other " + std::to_string(others) + " ranks:";
  const char* separator = " ";
  for (const auto& [end, count] : counts) {
    line += separator;
    if (others > 1) line += std::to_string(count) + " ";
    line += end;
    separator = ", ";
  }
  return line + "\n";
}

}  // namespace

std::string FailureReport(const std::vector<ExitReport>& reports) {
  const ExitReport* const first = FirstFailure(reports);
  if (first == nullptr) return {};

  std::string text = first->name.empty() ? "rank " + std::to_string(first->rank) : first->name;
  text += " (";
  if (!first->role.empty()) {
    text += first->role + (first->role_rank < 0 ? "" : " " + std::to_string(first->role_rank)) + ", ";
  }
  const std::string failed = first->name.empty() ? ") failed first" : ") failed";
  text += first->pid != 0 ? "pid " + std::to_string(first->pid) + failed + ", after " +
                                Seconds(first->ended - first->started) + ": "
                          : "never ran" + failed + ": ";
  text += ExitInWords(*first) + "\n" + Others(reports, *first);
  if (!first->device_trouble.empty()) text += "  its device: " + first->device_trouble + "\n";
  if (!first->core_file.empty()) text += "  its core dump: " + first->core_file + "\n";
  if (!first->stack_lines.empty()) {
    text += "  where it stood:\n";
    for (const std::string& line : first->stack_lines) text += "    | " + Printable(line) + "\n";
  }
  for (const ExitReport& report : reports) {
    if (report.stack_file.empty()) continue;
    text += "  all stacks of " + (&report == first ? "it" : RankInWords(report)) + ": " + report.stack_file +
            "\n";
  }
  if (!first->last_lines.empty()) {
    text += first->last_lines.size() == 1 ? "  its last line:\n" : "  its last lines:\n";
    for (const std::string& line : first->last_lines) text += "    | " + Printable(line) + "\n";
  }
  if (!first->advice.empty()) text += "  " + first->advice + "\n";
  if (!first->log_file.empty()) text += "  its whole output: " + first->log_file + "\n";
  return text;
}

}  // namespace lockstep::process
