#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Lines of a container's log, as the API gives them with `timestamps`. Pure.
namespace lockstep::plugin {

struct LogLine {
  int64_t time = 0;  // nanoseconds since 1970
  std::string text;  // without the newline
};

// "2026-01-31T12:00:00.123456789Z text". What has no time in front is a line of the time `fallback`: a
// container may write whatever it likes.
LogLine ParseLogLine(std::string_view line, int64_t fallback);

// RFC 3339 in whole seconds, rounded down: the API's sinceTime.
std::string SinceTime(int64_t time);

// The rank that a line of an agent's output is from ("[rank 3] …", see process/output_log.h); empty: the
// agent itself.
std::optional<int> RankOf(std::string_view text);

// Puts lines together from the pieces in which they come. A longer line than 1 MiB comes in pieces.
class LineSplitter {
 public:
  // Calls take(line), without the newline, for every line that ends in `bytes`; stops when that is false, and
  // then returns false.
  template <typename Take>
  bool Add(std::string_view bytes, Take&& take) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      partial_ += bytes.substr(0, end);
      bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
      if (end == std::string_view::npos && partial_.size() < kLongest) return true;
      if (!Flush(take)) return false;
    }
    return true;
  }
  // What has come of the last line.
  template <typename Take>
  bool Flush(Take&& take) {
    if (partial_.empty()) return true;
    const std::string line = std::move(partial_);
    partial_.clear();
    return take(line);
  }

 private:
  static constexpr size_t kLongest = 1 << 20;
  std::string partial_;
};

}  // namespace lockstep::plugin
