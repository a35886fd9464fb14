#include "launcher/process/output_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/log.h"
#include "common/unique_fd.h"
#include "common/wall_time.h"
#include "launcher/process/line_tail.h"

namespace lockstep::process {

namespace {

constexpr size_t kMaxConsoleLine = 16 * 1024;  // a longer line is shown in pieces

// 31 to 36 are the six readable ones of the eight basic colours.
std::string Prefix(const Launch& launch, bool color) {
  const std::string text =
      "[" + (launch.name.empty() ? "rank " + std::to_string(launch.rank) : launch.name) + "] ";
  return color ? "\x1b[" + std::to_string(31 + launch.rank % 6) + "m" + text + "\x1b[0m" : text;
}

std::string StreamName(OutputStream stream) { return stream == OutputStream::kStdout ? "stdout" : "stderr"; }

// What a terminal would be left showing: progress bars overwrite their line with carriage returns.
std::string_view Visible(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const size_t carriage_return = line.rfind('\r');
  return carriage_return == std::string_view::npos ? line : line.substr(carriage_return + 1);
}

}  // namespace

struct OutputLog::Rank {
  struct Stream {
    std::string partial;  // what has come of the line so far
    EventLoop::TimerId timer = 0;
    std::string prefix;
  };

  std::string name;  // empty: a rank's
  int rank = 0;
  std::string path;
  UniqueFd file;
  bool warned = false;
  std::array<Stream, 2> streams;
  LineTail tail;
};

Result<std::unique_ptr<OutputLog>> OutputLog::Create(EventLoop& loop, Options options) {
  if (!options.folder.empty()) {
    std::error_code error;
    const std::filesystem::path folder(options.folder);
    if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), error);
    if (error) return Status::FromErrno(error.value(), "make folder " + folder.parent_path().string());
    if (::mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) {
      return Status::FromErrno(errno, "make folder " + options.folder);
    }
  }
  return std::unique_ptr<OutputLog>(new OutputLog(loop, std::move(options)));
}

OutputLog::OutputLog(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

OutputLog::~OutputLog() { Clear(); }

void OutputLog::Clear() {
  for (auto& [local_rank, rank] : ranks_) {
    ShowPartial(*rank, OutputStream::kStdout);
    ShowPartial(*rank, OutputStream::kStderr);
  }
  ranks_.clear();
}

Status OutputLog::Begin(int generation, const std::vector<Launch>& launches) {
  Clear();
  const std::string header = "=== generation " + std::to_string(generation) + ", " +
                             FormatTime(std::chrono::system_clock::now()) + " ===\n";
  Status result;
  for (const Launch& launch : launches) {
    auto rank = std::make_unique<Rank>();
    rank->name = launch.name;
    rank->rank = launch.rank;
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      const bool color = options_.console != nullptr && options_.console->ColorsOn(stream);
      rank->streams[static_cast<size_t>(stream)].prefix = Prefix(launch, color);
    }
    if (!options_.folder.empty()) {
      rank->path = options_.folder + "/" +
                   (launch.name.empty() ? "rank-" + std::to_string(launch.rank) : launch.name) + ".log";
      rank->file.reset(
          ::open(rank->path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
      if (!rank->file) {
        result = Status::FromErrno(errno, "open log file " + rank->path);
        rank->path.clear();
      }
      WriteFile(*rank, header);
    }
    ranks_[launch.local_rank] = std::move(rank);
  }
  return result;
}

void OutputLog::Again(int local_rank, int incarnation) {
  const auto found = ranks_.find(local_rank);
  if (found == ranks_.end()) return;
  Rank& rank = *found->second;
  rank.tail = LineTail();
  WriteFile(rank, "=== started again, incarnation " + std::to_string(incarnation) + ", " +
                      FormatTime(std::chrono::system_clock::now()) + " ===\n");
}

void OutputLog::WriteFile(Rank& rank, std::string_view bytes) {
  if (!rank.file) return;
  while (!bytes.empty()) {
    const ssize_t size = ::write(rank.file.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const int error = errno;
      if (!std::exchange(rank.warned, true)) {
        log::Warning("log file " + rank.path + ": " + std::strerror(error) + "; output is missing from it");
      }
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(size));
  }
}

void OutputLog::Write(int local_rank, OutputStream stream, std::string_view bytes) {
  const auto found = ranks_.find(local_rank);
  if (found == ranks_.end()) return;
  Rank& rank = *found->second;
  WriteFile(rank, bytes);

  Rank::Stream& state = rank.streams[static_cast<size_t>(stream)];
  std::string text;  // for the console, in one piece
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) break;
    if (state.partial.empty()) {
      EndLine(rank, stream, bytes.substr(0, newline), text);
    } else {
      state.partial += bytes.substr(0, newline);
      EndLine(rank, stream, state.partial, text);
      state.partial.clear();
    }
    bytes.remove_prefix(newline + 1);
  }
  state.partial += bytes;
  while (state.partial.size() > kMaxConsoleLine) {
    EndLine(rank, stream, std::string_view(state.partial).substr(0, kMaxConsoleLine), text);
    state.partial.erase(0, kMaxConsoleLine);
  }
  if (options_.console != nullptr) options_.console->Write(stream, text);

  if (state.partial.empty()) {
    loop_.Cancel(std::exchange(state.timer, 0));
  } else if (state.timer == 0) {
    state.timer =
        loop_.After(options_.partial_line_limit, [this, &rank, stream] { ShowPartial(rank, stream); });
  }
}

void OutputLog::EndLine(Rank& rank, OutputStream stream, std::string_view line, std::string& text) {
  const std::string_view visible = Visible(line);
  rank.tail.Add(visible);
  if (options_.console == nullptr) return;
  if (log::format() == log::Format::kJson) {
    log::Fields fields = {{"stream", StreamName(stream)}};
    if (rank.name.empty()) fields.emplace(fields.begin(), "rank", rank.rank);
    text += log::JsonLine(log::Level::kInfo, rank.name.empty() ? "rank" : rank.name, visible, fields);
  } else {
    text.append(rank.streams[static_cast<size_t>(stream)].prefix).append(visible);
  }
  text += '\n';
}

void OutputLog::ShowPartial(Rank& rank, OutputStream stream) {
  Rank::Stream& state = rank.streams[static_cast<size_t>(stream)];
  loop_.Cancel(std::exchange(state.timer, 0));
  if (state.partial.empty()) return;
  std::string text;
  EndLine(rank, stream, std::exchange(state.partial, {}), text);
  if (options_.console != nullptr) options_.console->Write(stream, text);
}

void OutputLog::Complete(ExitReport& report) {
  const auto found = ranks_.find(report.local_rank);
  if (found == ranks_.end()) return;
  ShowPartial(*found->second, OutputStream::kStdout);
  ShowPartial(*found->second, OutputStream::kStderr);
  report.last_lines = found->second->tail.Lines();
  report.log_file = found->second->path;
}

std::vector<std::string> OutputLog::LastLines(int local_rank) const {
  const auto found = ranks_.find(local_rank);
  return found == ranks_.end() ? std::vector<std::string>() : found->second->tail.Lines();
}

std::string OutputLog::LogFile(int local_rank) const {
  const auto found = ranks_.find(local_rank);
  return found == ranks_.end() ? std::string() : found->second->path;
}

}  // namespace lockstep::process
