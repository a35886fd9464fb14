#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"

namespace lockstep::job {

// A control daemon of NVIDIA's Multi-Process Service for the ranks of one generation (devices.memory.enforce:
// MPS), with folders of its own, so that it meets no other on the machine. One a generation: a fatal fault of
// one client leaves the daemon's server of no use to the next (NVIDIA, "Multi-Process Service", "Error
// containment").
//
// It runs below the launcher like the ranks: should the launcher be killed, the guard ends it with them.
// Both calls block: Start until the daemon has gone into the background, at most three seconds, the
// destructor until it has quit, at most two. On the loop's thread, where children are reaped.
class MpsDaemon {
 public:
  struct Options {
    std::string program = {};                 // path of nvidia-cuda-mps-control
    std::string run_folder = {};              // its logs go to mps-log there
    std::vector<std::string> devices = {};    // UUIDs: what it may use
    placement::Environment environment = {};  // of the launcher
  };

  // kFailedPrecondition: it did not start, with what it said.
  static Result<std::unique_ptr<MpsDaemon>> Start(const Options& options);
  // Sends "quit"; what does not end by it is left to the sweep that ends everything below the launcher.
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  // For its clients, as CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY.
  const std::string& pipe_directory() const { return pipe_directory_; }
  const std::string& log_directory() const { return log_directory_; }

 private:
  explicit MpsDaemon(const Options& options);

  Status MakeFolders();
  Status Command(const std::vector<std::string>& arguments, const std::string& input,
                 std::chrono::milliseconds limit) const;

  const Options options_;
  std::string pipe_directory_;
  std::string log_directory_;
  bool started_ = false;
};

}  // namespace lockstep::job
