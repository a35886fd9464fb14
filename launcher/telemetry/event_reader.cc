#include "launcher/telemetry/event_reader.h"

#include <utility>

namespace lockstep::telemetry {

int EventReader::Feed(std::string_view bytes, const EventCallback& on_event) {
  int malformed = 0;
  while (true) {
    const size_t newline = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, newline);
    if (!skipping_ && partial_.size() + piece.size() > contract::kMaxEventBytes) {
      malformed += Malformed("event line: longer than 64 KiB");
      skipping_ = true;
      std::string().swap(partial_);
    }
    if (newline == std::string_view::npos) {
      if (!skipping_) partial_ += piece;
      return malformed;
    }
    if (skipping_) {
      skipping_ = false;
    } else if (partial_.empty()) {
      malformed += Line(piece, on_event);
    } else {
      partial_ += piece;
      malformed += Line(std::exchange(partial_, {}), on_event);
    }
    bytes.remove_prefix(newline + 1);
  }
}

int EventReader::Finish(const EventCallback& on_event) {
  skipping_ = false;
  return Line(std::exchange(partial_, {}), on_event);
}

int EventReader::Line(std::string_view line, const EventCallback& on_event) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.empty()) return 0;
  const Result<contract::Event> event = contract::ParseEvent(line);
  if (!event.ok()) return Malformed(event.status().message());
  on_event(*event);
  return 0;
}

int EventReader::Malformed(std::string error) {
  ++malformed_;
  last_error_ = std::move(error);
  return 1;
}

}  // namespace lockstep::telemetry
