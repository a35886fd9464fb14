#include "launcher/process/exit_report.h"

#include <signal.h>
#include <string.h>

#include <array>

#include "common/contract/exit_codes.h"
#include "common/cut_text.h"

namespace lockstep::process {

namespace {

constexpr size_t kMaxWords = 200;

// What these signals mean to somebody who trains models, rather than strsignal's words.
struct SignalMeaning {
  int signal;
  const char* words;
};
constexpr std::array<SignalMeaning, 10> kSignalMeanings = {{
    {SIGSEGV, "invalid memory access"},
    {SIGBUS, "memory access beyond its file or shared memory: /dev/shm may be full"},
    {SIGILL, "instruction that this processor does not have"},
    {SIGFPE, "integer arithmetic error: division by zero"},
    {SIGABRT, "aborted itself: a failed assertion or an uncaught exception"},
    {SIGKILL, "killed from outside"},
    {SIGTERM, "asked to end"},
    {SIGXCPU, "limit on processor time"},
    {SIGXFSZ, "limit on the size of a file"},
    {SIGPIPE, "wrote to a pipe that nobody reads"},
}};

std::string CodeInWords(int code, bool own_trainer) {
  using namespace contract;
  if (code == kExitCannotExecute) return "command not executable";
  if (code == kExitNotFound) return "command not found";
  if (!own_trainer) return {};
  switch (code) {
    case kExitDone:
      return "done";
    case kExitUsage:
      return "wrong usage or manifest";
    case kExitPermanent:
      return "permanent failure: bad data or bad model";
    case kExitSuperseded:
      return "another run of the job has taken its place";
    case kExitCollectiveLost:
      return "a peer vanished in a collective";
    case kExitRendezvous:
      return "the other ranks were not found in time";
    case kExitDeviceLost:
      return "device lost";
    case kExitOutOfMemory:
      return "out of memory on its device";
    case kExitCheckpointed:
      return "checkpoint written, asked to stop";
    default:
      break;
  }
  if (code >= kExitRetryable && code <= kExitRetryableLast) return "retryable failure";
  return {};
}

bool LostItsPeers(const ExitReport& report) {
  return report.own_trainer &&
         (report.exit_code == contract::kExitCollectiveLost || report.exit_code == contract::kExitRendezvous);
}

}  // namespace

std::string_view ReasonName(ExitReason reason) {
  switch (reason) {
    case ExitReason::kCompleted:
      return "Completed";
    case ExitReason::kError:
      return "Error";
    case ExitReason::kSignal:
      return "Signal";
    case ExitReason::kOutOfMemory:
      return "OOMKilled";
    case ExitReason::kStopped:
      return "Stopped";
    case ExitReason::kCannotExecute:
      return "CannotExecute";
    case ExitReason::kNotStarted:
      return "NotStarted";
  }
  return "Error";
}

bool IsFailure(const ExitReport& report) {
  if (report.reason == ExitReason::kCompleted || report.reason == ExitReason::kStopped) return false;
  const bool checkpointed = report.own_trainer && report.exit_code == contract::kExitCheckpointed;
  return !report.asked_to_stop && !checkpointed;
}

const ExitReport* FirstFailure(const std::vector<ExitReport>& reports) {
  const ExitReport* first = nullptr;
  for (const ExitReport& report : reports) {
    if (!IsFailure(report)) continue;
    if (first == nullptr) first = &report;
    if (!LostItsPeers(report)) return &report;
  }
  return first;
}

std::string SignalInWords(int signal) {
  const char* const abbreviation = ::sigabbrev_np(signal);
  std::string words = abbreviation != nullptr ? "SIG" + std::string(abbreviation) : "a real-time signal";
  for (const SignalMeaning& meaning : kSignalMeanings) {
    if (meaning.signal == signal) return words + ": " + meaning.words;
  }
  const char* const description = ::sigdescr_np(signal);
  if (description != nullptr) words += std::string(": ") + description;
  return words;
}

std::string RankInWords(const ExitReport& report) {
  if (!report.name.empty()) return report.name;
  const std::string rank = "rank " + std::to_string(report.rank);
  if (report.role_rank < 0) return rank;
  return rank + " (" + report.role + " " + std::to_string(report.role_rank) + ")";
}

std::string ExitInWords(const ExitReport& report) {
  if (report.reason == ExitReason::kCannotExecute) {
    return "exit code " + std::to_string(report.exit_code) + ": " +
           (report.detail.empty() ? CodeInWords(report.exit_code, report.own_trainer) : report.detail);
  }
  if (report.reason == ExitReason::kNotStarted) return "could not be started: " + report.detail;
  if (report.reason == ExitReason::kOutOfMemory) {
    return "killed by the kernel: out of memory (OOMKilled; it held up to " +
           std::to_string(report.max_rss_bytes / (1024 * 1024)) + " MiB)";
  }
  if (report.signal != 0) {
    return "killed by signal " + std::to_string(report.signal) + " (" + SignalInWords(report.signal) + ")" +
           (report.core_dumped ? ", core dumped" : "");
  }
  const std::string words = CodeInWords(report.exit_code, report.own_trainer);
  return "exit code " + std::to_string(report.exit_code) + (words.empty() ? "" : ": " + words);
}

std::string LastLineInWords(const ExitReport& report) {
  if (report.last_lines.empty()) return {};
  return "; its last line: " + Printable(CutText(report.last_lines.back(), kMaxWords));
}

// What follows ends a terminal's control sequences too; a tab is harmless, and bytes above 0x7f are UTF-8.
std::string Printable(std::string line) {
  for (char& c : line) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) c = '?';
  }
  return line;
}

}  // namespace lockstep::process
