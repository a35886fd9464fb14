#include "launcher/top/screen.h"

#include <algorithm>
#include <utility>

namespace lockstep::top {

namespace {

using plugin::StatusLine;
using Kind = StatusLine::Kind;

constexpr int kLongestBar = 60;
constexpr int kIndent = 2;

// Of UTF-8 whose characters are all one column wide.
void Truncate(std::string& text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) != 0x80 && seen++ == columns) return text.resize(i);
  }
}

// Cut at blanks, what follows indented, so that no line is longer; a word that is, is cut by Draw.
void AddWrapped(const StatusLine& line, int columns, std::vector<StatusLine>& lines) {
  const auto width = static_cast<size_t>(std::max(columns, kIndent + 1));
  std::string rest = line.text;
  while (rest.size() > width) {
    const size_t blank = rest.rfind(' ', width);
    if (blank == std::string::npos || blank <= kIndent) break;
    lines.push_back({rest.substr(0, blank), line.kind});
    rest = std::string(kIndent, ' ') + rest.substr(blank + 1);
  }
  lines.push_back({rest, line.kind});
}

std::string Bar(int percentage, int columns) {
  const int width = std::clamp(columns - 2, 0, kLongestBar);
  const int done = std::clamp(percentage, 0, 100) * width / 100;
  return "[" + std::string(static_cast<size_t>(done), '=') +
         std::string(static_cast<size_t>(width - done), ' ') + "]";
}

const char* NameOf(plugin::RankOrder order) {
  switch (order) {
    case plugin::RankOrder::kRank:
      return "rank";
    case plugin::RankOrder::kSlowest:
      return "slowest first";
    case plugin::RankOrder::kMemory:
      return "most memory first";
  }
  return "";
}

}  // namespace

void Screen::Show(plugin::StatusText status) {
  status_ = std::move(status);
  shown_ = true;
  trouble_.clear();
}

void Screen::Scroll(int by) { first_ = std::clamp(first_ + by, 0, most_); }

std::vector<StatusLine> Screen::Above(int columns) const {
  std::vector<StatusLine> lines;
  for (const StatusLine& line : status_.head) AddWrapped(line, columns, lines);
  if (status_.percentage) lines.push_back({Bar(*status_.percentage, columns)});
  for (const StatusLine& line : status_.notes) AddWrapped(line, columns, lines);
  if (!shown_) lines.push_back({trouble_.empty() ? "asking " + source_ : "no answer yet"});
  return lines;
}

StatusLine Screen::Below() const {
  if (!trouble_.empty()) return {trouble_, Kind::kTrouble};
  return {"q quit   o order: " + std::string(NameOf(order_)) + "   arrows, page keys scroll   " + source_,
          Kind::kHeading};
}

std::vector<StatusLine> Screen::Draw(int rows, int columns) {
  const auto room = static_cast<size_t>(std::max(rows, 1));
  std::vector<StatusLine> lines = Above(columns);
  // On a small screen at least the heading and a rank are seen.
  const size_t least = status_.ranks.empty() ? 1 : 4;
  if (lines.size() + least > room) lines.resize(room > least ? room - least : 0);
  if (!status_.ranks.empty()) {
    if (!lines.empty()) lines.push_back({""});
    lines.push_back(status_.ranks.front());
    const size_t ranks = status_.ranks.size() - 1;
    const size_t seen = std::min(ranks, room > lines.size() + 1 ? room - lines.size() - 1 : 0);
    most_ = static_cast<int>(ranks - seen);
    first_ = std::min(first_, most_);
    const auto begin = status_.ranks.begin() + 1 + first_;
    lines.insert(lines.end(), begin, begin + static_cast<ptrdiff_t>(seen));
  }
  if (lines.size() + 1 > room) lines.resize(room - 1);
  while (lines.size() + 1 < room) lines.push_back({""});
  lines.push_back(Below());
  for (StatusLine& line : lines) Truncate(line.text, columns);
  return lines;
}

}  // namespace lockstep::top
