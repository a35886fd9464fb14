#include "launcher/top/screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::top {
namespace {

using plugin::StatusLine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = StatusLine::Kind;

plugin::StatusText Job(int ranks) {
  plugin::StatusText text{
      .head = {{"mnist in default: Running", Kind::kTitle}, {"step 120 of 400"}},
      .ranks = {{"RANK  STATE", Kind::kHeading}},
      .notes = {{"last failure: Signal", Kind::kTrouble}},
      .percentage = 30,
  };
  for (int i = 0; i < ranks; ++i) text.ranks.push_back({"rank " + std::to_string(i)});
  return text;
}

std::vector<std::string> Texts(const std::vector<StatusLine>& lines) {
  std::vector<std::string> texts;
  for (const StatusLine& line : lines) texts.push_back(line.text);
  return texts;
}

TEST(ScreenTest, HasTheJobAboveTheRanksBelowAndTheKeysAtTheBottom) {
  Screen screen("http://here");
  screen.Show(Job(2));
  EXPECT_THAT(Texts(screen.Draw(11, 22)),
              ElementsAre("mnist in default:", "  Running", "step 120 of 400", "[======              ]",
                          "last failure: Signal", "", "RANK  STATE", "rank 0", "rank 1", "",
                          "q quit   o order: rank"));
}

TEST(ScreenTest, RanksScrollToTheLastOneAndNoFurther) {
  Screen screen("http://here");
  screen.Show(Job(10));
  const auto ranks = [&] {
    const auto lines = Texts(screen.Draw(10, 80));
    return std::vector<std::string>(lines.begin() + 6, lines.end() - 1);
  };
  EXPECT_THAT(ranks(), ElementsAre("rank 0", "rank 1", "rank 2"));
  screen.Scroll(2);
  EXPECT_THAT(ranks(), ElementsAre("rank 2", "rank 3", "rank 4"));
  screen.Scroll(100);
  EXPECT_THAT(ranks(), ElementsAre("rank 7", "rank 8", "rank 9"));
  screen.Scroll(-100);
  EXPECT_THAT(ranks(), ElementsAre("rank 0", "rank 1", "rank 2"));
  screen.Scroll(100);
  screen.Show(Job(4));  // the others are gone
  EXPECT_THAT(ranks(), ElementsAre("rank 1", "rank 2", "rank 3"));
}

TEST(ScreenTest, APictureStaysWhenNoNewOneComesAndTheLastLineSaysWhy) {
  Screen screen("http://here");
  EXPECT_THAT(Texts(screen.Draw(4, 80)), ElementsAre("asking http://here", "", "", HasSubstr("q quit")));
  screen.Fail("GET http://here/status: nobody there");
  EXPECT_EQ(screen.Draw(4, 80).front().text, "no answer yet");
  screen.Show(Job(1));
  screen.Fail("GET http://here/status: nobody there");
  const auto lines = screen.Draw(10, 80);
  EXPECT_EQ(lines.front().text, "mnist in default: Running");
  EXPECT_EQ(lines.back().text, "GET http://here/status: nobody there");
  EXPECT_EQ(lines.back().kind, Kind::kTrouble);
  screen.Show(Job(1));
  EXPECT_THAT(screen.Draw(10, 80).back().text, HasSubstr("q quit"));
}

TEST(ScreenTest, NoScreenIsTooSmall) {
  Screen screen("http://here");
  screen.Show(Job(100));
  for (int rows = 0; rows < 12; ++rows) {
    for (const int columns : {0, 1, 2, 3, 20}) {
      const auto lines = screen.Draw(rows, columns);
      EXPECT_EQ(lines.size(), static_cast<size_t>(std::max(rows, 1)));
      for (const StatusLine& line : lines) EXPECT_LE(line.text.size(), static_cast<size_t>(columns));
    }
  }
  const auto small = Texts(screen.Draw(5, 80));  // a rank is seen even so
  EXPECT_THAT(small,
              ElementsAre("mnist in default: Running", "", "RANK  STATE", "rank 0", HasSubstr("q quit")));
}

TEST(ScreenTest, LinesEndBetweenCharacters) {
  Screen screen("http://here");
  screen.Show({.head = {{"a…b"}}});
  EXPECT_EQ(screen.Draw(3, 2).front().text, "a…");
  EXPECT_EQ(screen.Draw(3, 1).front().text, "a");
}

}  // namespace
}  // namespace lockstep::top
