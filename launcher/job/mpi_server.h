#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/pmix/job_map.h"
#include "launcher/process/child_process.h"
#include "launcher/process/event_lines.h"

namespace lockstep::job {

// lockstep-pmix for the ranks of one generation (program.framework: MPI or Horovod), below the launcher like
// them. On the loop's thread.
class MpiServer {
 public:
  struct Options {
    std::string program = {};  // path of lockstep-pmix
    std::vector<int> machines = {};
    size_t self = 0;
    bool horovod = false;  // all three as pmix::JobMap has them
    std::string name_space = {};
    std::string run_folder = {};
    placement::Environment environment = {};      // of the launcher, with the store's as a rank has it
    std::function<void(const std::string&)> say;  // what the server says on standard error, by lines
  };

  // Blocks until it serves, at most 15 seconds. kFailedPrecondition: it does not, with what it said.
  static Result<std::unique_ptr<MpiServer>> Start(EventLoop& loop, Options options);
  ~MpiServer();
  MpiServer(const MpiServer&) = delete;
  MpiServer& operator=(const MpiServer&) = delete;

  // What each rank of this machine needs to find it, by local rank.
  const std::vector<placement::Variables>& environments() const { return environments_; }
  // The server's and its ranks' own, in memory where there is a /dev/shm; gone with this.
  const std::string& folder() const { return folder_; }
  // There are several ranks, and none has asked who the others are.
  bool NobodyCame();

 private:
  MpiServer(EventLoop& loop, Options options);

  Status MakeFolder();
  Status Spawn();
  Status AwaitEnvironments();
  void OnSaid();

  EventLoop& loop_;
  const Options options_;
  std::string folder_;
  process::ChildProcess process_;
  process::ChildPipes pipes_;
  std::string out_;  // unread yet
  process::EventLines said_;
  std::vector<placement::Variables> environments_;
};

}  // namespace lockstep::job
