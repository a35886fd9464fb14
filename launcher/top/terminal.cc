#include "launcher/top/terminal.h"

#include <ncurses.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace lockstep::top {

namespace {

using Kind = plugin::StatusLine::Kind;

constexpr short kTroubleColor = 1;

bool ColorsWanted() {
  const char* const no_color = std::getenv("NO_COLOR");
  return no_color == nullptr || *no_color == '\0';
}

attr_t AttributesOf(Kind kind) {
  switch (kind) {
    case Kind::kPlain:
      return A_NORMAL;
    case Kind::kTitle:
      return A_BOLD;
    case Kind::kHeading:
      return A_REVERSE;
    case Kind::kTrouble:
      return ColorsWanted() && ::has_colors() ? COLOR_PAIR(kTroubleColor) : A_BOLD;
  }
  return A_NORMAL;
}

}  // namespace

Result<std::unique_ptr<Terminal>> Terminal::Open() {
  std::setlocale(LC_ALL, "");
  // (initscr would end the program.)
  if (::newterm(nullptr, stdout, stdin) == nullptr) {
    const char* const term = std::getenv("TERM");
    return FailedPrecondition("the terminal (TERM=" + std::string(term == nullptr ? "" : term) +
                              ") is not one to draw on; redirect the output to get plain text");
  }
  ::cbreak();
  ::noecho();
  ::nonl();
  ::keypad(stdscr, TRUE);
  ::curs_set(0);
  if (ColorsWanted() && ::has_colors()) {
    ::start_color();
    ::use_default_colors();
    ::init_pair(kTroubleColor, COLOR_RED, -1);
  }
  return std::unique_ptr<Terminal>(new Terminal);
}

Terminal::~Terminal() { ::endwin(); }

int Terminal::rows() const { return getmaxy(stdscr); }
int Terminal::columns() const { return getmaxx(stdscr); }

void Terminal::Draw(const std::vector<plugin::StatusLine>& lines) {
  ::werase(stdscr);
  int row = 0;
  for (const plugin::StatusLine& line : lines) {
    const attr_t attributes = AttributesOf(line.kind);
    std::string text = line.text;
    if (line.kind == Kind::kHeading) text.resize(std::max(text.size(), static_cast<size_t>(columns())), ' ');
    ::wattr_on(stdscr, attributes, nullptr);
    mvwaddnstr(stdscr, row++, 0, text.c_str(), -1);
    ::wattr_off(stdscr, attributes, nullptr);
  }
  ::wrefresh(stdscr);
}

Key Terminal::WaitForKey(std::chrono::milliseconds limit) {
  ::wtimeout(stdscr, static_cast<int>(limit.count()));
  switch (::wgetch(stdscr)) {
    case 'q':
    case 'Q':
      return Key::kQuit;
    case 'o':
      return Key::kOrder;
    case KEY_UP:
    case 'k':
      return Key::kUp;
    case KEY_DOWN:
    case 'j':
      return Key::kDown;
    case KEY_PPAGE:
      return Key::kPageUp;
    case KEY_NPAGE:
    case ' ':
      return Key::kPageDown;
    case KEY_HOME:
      return Key::kFirst;
    case KEY_END:
      return Key::kLast;
    default:
      return Key::kNone;
  }
}

}  // namespace lockstep::top
