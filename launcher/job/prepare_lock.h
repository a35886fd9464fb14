#pragma once

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/placement/assign.h"

namespace lockstep::job {

// Keeps launchers of one user on one machine from preparing it twice at once: a file that is locked (flock)
// while the program runs, so that a crash leaves nothing to clean up. It holds the name of the last run that
// ended well, by which whoever waited for it knows that it has nothing left to do.
class PrepareLock {
 public:
  // `folder`: as ledger::DeviceLedger::FolderFor. kFailedPrecondition: the file there is somebody else's;
  // others as open(2).
  static Result<PrepareLock> Open(const std::string& folder, const placement::Preparation& preparation);

  // Whether this launcher has it now. Does not wait.
  Result<bool> Try();
  // With it: whether another launcher has done the same since Open().
  Result<bool> DoneMeanwhile() const;
  // With it: what it is for has been done.
  Status MarkDone();

  const std::string& path() const { return path_; }

 private:
  PrepareLock(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<std::string> LastRun() const;

  std::string path_;
  UniqueFd file_;
  std::string before_;  // the last run at Open()
};

}  // namespace lockstep::job
