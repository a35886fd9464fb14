#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "launcher/placement/assign.h"
#include "launcher/process/program_run.h"

namespace lockstep::job {

// Where one rank stood.
struct RankStack {
  std::vector<std::string> lines;  // for a report: its innermost functions, or why they are not known
  std::string file;                // all that was found out; empty: it could not be written
};

// Finds out where ranks stand that no longer move: asks py-spy of a Python program, or else gdb, and where
// neither is there or may look, /proc. What is found goes to `stack-rank-N.txt` of the run's folder. On the
// loop's thread, which it never blocks.
class RankStacks {
 public:
  struct Options {
    std::string folder = {};
    placement::Environment environment = {};  // of the launcher: its PATH is where the tools are
    std::chrono::milliseconds limit{
        10'000};  // for each tool; gdb takes seconds for the symbols of a framework
  };
  struct Rank {
    int rank = 0;
    pid_t pid = 0;
  };
  using Done = std::function<void(std::map<pid_t, RankStack> stacks)>;

  // The loop outlives this.
  RankStacks(EventLoop& loop, Options options);
  ~RankStacks();
  RankStacks(const RankStacks&) = delete;
  RankStacks& operator=(const RankStacks&) = delete;

  // All at once, at most kMost of them; `why` begins each file. `done` is called once, maybe before this
  // returns. Forgets a collection that still goes on.
  void Collect(const std::vector<Rank>& ranks, const std::string& why, Done done);

  static constexpr size_t kMost = 8;
  static constexpr size_t kMostBytes = size_t{64} << 10;  // of a tool's words

 private:
  struct Look;
  void AskNext(Look& look);
  void OnAnswer(Look& look, std::string text, bool in_time);
  void Finish(Look& look);

  EventLoop& loop_;
  const Options options_;
  std::vector<std::unique_ptr<Look>> looks_;
  size_t unfinished_ = 0;
  std::map<pid_t, RankStack> stacks_;
  Done done_;
};

// Of what py-spy or gdb says: the first thread, which is the main one, and its innermost functions. Empty
// where it names no thread.
std::vector<std::string> InnermostOf(const std::string& text);

}  // namespace lockstep::job
