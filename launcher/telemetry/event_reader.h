#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/contract/event.h"

namespace lockstep::telemetry {

// Cuts what arrives on one process's event pipe into lines and parses them. A line that is malformed or
// longer than contract::kMaxEventBytes is counted and skipped; empty lines are ignored. Never holds more than
// one line. Not thread-safe.
class EventReader {
 public:
  using EventCallback = std::function<void(const contract::Event&)>;

  // Takes the next bytes as they were read, and calls back for each event that they complete. Returns how
  // many lines of them were malformed.
  int Feed(std::string_view bytes, const EventCallback& on_event);
  // The pipe is closed: a last line without newline still counts, if it is an event. Returns as Feed.
  int Finish(const EventCallback& on_event);

  int64_t malformed() const { return malformed_; }
  // What was wrong with the last malformed line; empty when none was.
  const std::string& last_error() const { return last_error_; }

 private:
  int Line(std::string_view line, const EventCallback& on_event);
  int Malformed(std::string error);

  std::string partial_;
  bool skipping_ = false;  // the rest of a line that is too long
  int64_t malformed_ = 0;
  std::string last_error_;
};

}  // namespace lockstep::telemetry
