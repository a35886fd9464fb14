#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/event_loop.h"
#include "common/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/console.h"
#include "launcher/process/exit_report.h"

namespace lockstep::process {

// What the ranks write: whole into a file for each rank, line by line onto the console with the rank in
// front (or as JSON: log::Format), and the last 20 lines kept for the report on a failure.
//
// The files are <folder>/rank-<rank>.log (or <name>.log), mode 0600, the folder 0700 when it is made. Each
// generation appends to them after a line "=== generation 1, 2026-01-31T12:00:00Z ===". A file that can't be
// written (a full disk) is warned of once and tried again at the next bytes; the console goes on. One thread.
class OutputLog {
 public:
  struct Options {
    std::string folder;          // empty: no files
    Console* console = nullptr;  // null: no console; must outlive this
    // A line without an end is shown after this time all the same.
    std::chrono::milliseconds partial_line_limit{500};
  };

  // kNotFound, kPermissionDenied …: the folder can't be made.
  static Result<std::unique_ptr<OutputLog>> Create(EventLoop& loop, Options options);
  ~OutputLog();
  OutputLog(const OutputLog&) = delete;
  OutputLog& operator=(const OutputLog&) = delete;

  // Before the processes of a generation are started: ends the files of the last one and opens those of this
  // one. kResourceExhausted, kPermissionDenied …: some file can't be opened; all else works.
  Status Begin(int generation, const std::vector<Launch>& launches);

  // Before a process is started again alone: a line in its file, and no last lines yet.
  void Again(int local_rank, int incarnation);

  // For Supervisor's on_output. Ranks that Begin wasn't told of are dropped.
  void Write(int local_rank, OutputStream stream, std::string_view bytes);

  // For Supervisor's on_exit: shows what is left of a partial line, and fills in last_lines and log_file.
  void Complete(ExitReport& report);

  // The last lines of both streams in the order in which they ended, each cut at 4 KiB.
  std::vector<std::string> LastLines(int local_rank) const;
  // Empty when there is no file.
  std::string LogFile(int local_rank) const;

 private:
  struct Rank;
  OutputLog(EventLoop& loop, Options options);
  void Clear();
  static void WriteFile(Rank& rank, std::string_view bytes);
  void EndLine(Rank& rank, OutputStream stream, std::string_view line, std::string& text);
  void ShowPartial(Rank& rank, OutputStream stream);

  EventLoop& loop_;
  Options options_;
  std::map<int, std::unique_ptr<Rank>> ranks_;  // by local rank
};

}  // namespace lockstep::process
