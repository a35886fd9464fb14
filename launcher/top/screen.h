#pragma once

#include <string>
#include <vector>

#include "launcher/plugin/status_text.h"

// top/: a job's ranks on the whole terminal, live.
//
//   top.h  asks again and again, and does what keys say   screen.h  what is on the screen: pure
//   terminal.h  the terminal: the only place that knows ncurses
namespace lockstep::top {

// Above, what the job does and what is wrong; below it the ranks, which scroll; at the bottom what the keys
// do. Not thread-safe.
class Screen {
 public:
  // `source`: where the picture comes from, for the last line.
  explicit Screen(std::string source) : source_(std::move(source)) {}

  void Show(plugin::StatusText status);
  // The last picture stays, and the last line says why it is old.
  void Fail(std::string trouble) { trouble_ = std::move(trouble); }
  void SetOrder(plugin::RankOrder order) { order_ = order; }
  // By so many ranks; ends at the first and at the last one.
  void Scroll(int by);

  // At most `rows` lines of at most `columns` characters each. Remembers how far there is to scroll.
  std::vector<plugin::StatusLine> Draw(int rows, int columns);

 private:
  std::vector<plugin::StatusLine> Above(int columns) const;
  plugin::StatusLine Below() const;

  std::string source_;
  plugin::StatusText status_;
  bool shown_ = false;
  std::string trouble_;
  plugin::RankOrder order_ = plugin::RankOrder::kRank;
  int first_ = 0;  // rank line shown
  int most_ = 0;   // that it can be
};

}  // namespace lockstep::top
