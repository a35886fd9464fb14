#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plugin/status_view.h"

namespace lockstep::plugin {

// Which ranks come first.
enum class RankOrder { kRank, kSlowest, kMemory };

// A line without its newline, and what it is about.
struct StatusLine {
  enum class Kind { kPlain, kTitle, kHeading, kTrouble };
  std::string text;
  Kind kind = Kind::kPlain;
};

struct StatusText {
  std::vector<StatusLine> head;   // what the job does, and how far it is
  std::vector<StatusLine> ranks;  // a heading and a line a rank; empty: there are none
  std::vector<StatusLine> notes;  // who is slow, what failed, who says nothing
  std::optional<int> percentage;  // of the steps
};

// At most `lines` lines for the ranks, with those that have trouble or are slow first where there are more.
StatusText DescribeStatus(const JobView& view, op::Time now, int lines, RankOrder order = RankOrder::kRank);

// All of it, one after another. Every line ends with a newline.
std::string RenderStatus(const JobView& view, op::Time now, int lines);

}  // namespace lockstep::plugin
