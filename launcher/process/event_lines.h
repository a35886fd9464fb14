#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep::process {

// Makes lines of the bytes of an events pipe. A line of more than contract::kMaxEventBytes is skipped.
class EventLines {
 public:
  // Calls `deliver` for each line that is whole now, without its newline; returns how many were too long.
  int Feed(std::string_view bytes, const std::function<void(std::string_view)>& deliver);

  // A last line that nothing ended; empty when there is none.
  std::string TakeRest();

 private:
  std::string partial_;
  bool skipping_ = false;
};

}  // namespace lockstep::process
