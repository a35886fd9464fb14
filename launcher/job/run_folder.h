#pragma once

#include <string>

#include "common/status.h"

namespace lockstep::job {

// Where one run of a job leaves what outlives it, mode 0700:
//
//   manifest.json   the resolved manifest; what the trainer reads
//   rank-N.log      the whole output of rank N
//   http-address    HOST:PORT of /metrics, /status …
//   token           the job's secret, mode 0600; removed at the end
class RunFolder {
 public:
  // Makes `path`; empty: a new folder under $XDG_STATE_HOME/lockstep/runs/JOB (by default ~/.local/state), of
  // which the kKept newest stay. Errors name the folder.
  static Result<RunFolder> Create(const std::string& path, const std::string& job);

  const std::string& path() const { return path_; }
  std::string manifest_file() const { return path_ + "/manifest.json"; }
  std::string http_address_file() const { return path_ + "/http-address"; }
  std::string token_file() const { return path_ + "/token"; }

  static constexpr int kKept = 20;

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Whole or not at all.
Status WriteFile(const std::string& path, const std::string& contents);

}  // namespace lockstep::job
