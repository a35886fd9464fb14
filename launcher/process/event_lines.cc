#include "launcher/process/event_lines.h"

#include <utility>

#include "common/contract/event.h"

namespace lockstep::process {

int EventLines::Feed(std::string_view bytes, const std::function<void(std::string_view)>& deliver) {
  int too_long = 0;
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const std::string_view part = bytes.substr(0, newline);
    if (partial_.size() + part.size() > contract::kMaxEventBytes && !std::exchange(skipping_, true)) {
      ++too_long;
      partial_.clear();
    }
    if (newline == std::string_view::npos) {
      if (!skipping_) partial_ += part;
      return too_long;
    }
    if (std::exchange(skipping_, false)) {
      // The newline ends what was skipped.
    } else if (partial_.empty()) {
      deliver(part);
    } else {
      deliver(std::exchange(partial_, {}).append(part));
    }
    bytes.remove_prefix(newline + 1);
  }
  return too_long;
}

std::string EventLines::TakeRest() { return std::exchange(partial_, {}); }

}  // namespace lockstep::process
