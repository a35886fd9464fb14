#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "common/status.h"
#include "launcher/plugin/status_text.h"

namespace lockstep::top {

enum class Key { kNone, kQuit, kOrder, kUp, kDown, kPageUp, kPageDown, kFirst, kLast };

// The whole terminal on standard output, given back as it was when this goes, and when SIGINT, SIGTERM or
// SIGTSTP comes. One at a time; one thread.
class Terminal {
 public:
  // kFailedPrecondition: the terminal can't move its cursor, or is not known (TERM).
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  int rows() const;
  int columns() const;
  void Draw(const std::vector<plugin::StatusLine>& lines);
  // Waits for a key. kNone: none came in time, or the terminal's size changed.
  Key WaitForKey(std::chrono::milliseconds limit);

 private:
  Terminal() = default;
};

}  // namespace lockstep::top
