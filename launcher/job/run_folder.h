#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace lockstep::job {

// Where one run of a job leaves what outlives it, mode 0700:
//
//   manifest.json   the resolved manifest; what the trainer reads
//   rank-N.log      the whole output of rank N
//   stack-rank-N.txt   where rank N stood when it was found hanging last (rank_stacks.h)
//   status.json     /status as it was last, so how it ended
//   metrics.jsonl, events.jsonl   see telemetry/run_record.h
//   trace.json      with --trace: the last steps of this launcher's ranks (telemetry/trace_file.h)
//   trace/          until then: what each rank has left of it
//   http-address    HOST:PORT of /metrics, /status …
//   generation      in a pod: its uid and the last generation, for an agent that is started again
//   token           the job's secret, mode 0600; removed at the end
class RunFolder {
 public:
  // Makes `path`; empty: a new folder under $XDG_STATE_HOME/lockstep/runs/JOB (by default ~/.local/state), of
  // which the kKept newest stay. Errors name the folder.
  static Result<RunFolder> Create(const std::string& path, const std::string& job);

  const std::string& path() const { return path_; }
  std::string manifest_file() const { return path_ + "/manifest.json"; }
  std::string status_file() const { return path_ + "/status.json"; }
  std::string trace_file() const { return path_ + "/trace.json"; }
  std::string trace_folder() const { return path_ + "/trace"; }
  std::string http_address_file() const { return path_ + "/http-address"; }
  std::string token_file() const { return path_ + "/token"; }
  std::string generation_file() const { return path_ + "/generation"; }

  static constexpr int kKept = 20;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// The folders of the runs of a job, or of all jobs if it is empty, the newest first, at most so many: those
// that were not told where to be. Empty when there are none.
Result<std::vector<std::string>> NewestRuns(const std::string& job, size_t most = RunFolder::kKept);
// HOST:PORT of the launcher of a run's folder; empty when it has not said it. It may be long gone.
std::string AddressOfRun(const std::string& folder);

// Whole or not at all.
Status WriteFile(const std::string& path, const std::string& contents);

}  // namespace lockstep::job
