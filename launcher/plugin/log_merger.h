#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "launcher/plugin/log_line.h"

namespace lockstep::plugin {

// Many logs as one in the order of their times. Each source is filled by a thread of its own, and waits when
// it is far ahead of the others, so that memory is bounded; one thread takes the lines out. All calls are
// safe from every thread.
class LogMerger {
 public:
  // A line is given out when every open source has one, or after it has waited for `patience` for those that
  // are silent. Empty: as long as it takes, so that the order is exact.
  explicit LogMerger(std::optional<std::chrono::milliseconds> patience) : patience_(patience) {}

  struct Line {
    std::string source;
    LogLine line;
  };

  // Opens a source; lines show `name`. Returns its number.
  int Open(std::string name);
  // Waits while the source has too many lines that were not taken. False: nobody takes any more.
  bool Add(int source, LogLine line);
  void Close(int source);
  // No source will be opened any more.
  void Finish();
  // Lines are of no more use: Add returns false, Next returns nothing.
  void Stop();

  // The next line; waits for it. Empty: there will be none.
  std::optional<Line> Next();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kMostLines = 1024;
  static constexpr size_t kMostBytes = 1 << 20;

  struct Waiting {
    LogLine line;
    Clock::time_point since;
  };
  struct Source {
    std::string name;
    std::deque<Waiting> lines;
    size_t bytes = 0;
    bool open = true;
  };

  const std::optional<std::chrono::milliseconds> patience_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::condition_variable taken_;
  std::map<int, Source> sources_;  // open, or with lines
  int next_number_ = 0;
  bool finished_ = false;
  bool stopped_ = false;
};

}  // namespace lockstep::plugin
