#include "launcher/import/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::importer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> TextsOf(std::string_view text) {
  std::vector<std::string> texts;
  for (const Word& word : SplitCommand(text).value_or(std::vector<Word>{{.text = "none"}}))
    texts.push_back(word.text);
  return texts;
}

TEST(SplitCommandTest, ReadsQuotesAsAShellDoes) {
  EXPECT_THAT(TextsOf("a  b\tc"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(TextsOf(R"(a 'b c' "d \"e\" \x" f\ g '' h"i"'j')"),
              ElementsAre("a", "b c", "d \"e\" \\x", "f g", "", "hij"));
  EXPECT_THAT(TextsOf("\n  a \\\n b  # and so on\n\n"), ElementsAre("a", "b"));
  EXPECT_THAT(TextsOf("a#b"), ElementsAre("a#b"));
  EXPECT_THAT(TextsOf(""), IsEmpty());
}

TEST(SplitCommandTest, RefusesWhatIsMoreThanOneCommand) {
  for (const char* text : {"a; b", "a && b", "a | b", "a > b", "a $(b)", "a `b`", "a \"$(b)\"", "(a)", "a\nb",
                           "a 'b", "a \"b", "a \\"}) {
    EXPECT_FALSE(SplitCommand(text)) << text;
  }
}

TEST(SplitCommandTest, KnowsWhatAShellWouldExpand) {
  const auto words = SplitCommand(R"(a $B "${C}" '$D' *.py \$e)");
  ASSERT_TRUE(words);
  std::vector<bool> expands;
  for (const Word& word : *words) expands.push_back(word.expands);
  EXPECT_THAT(expands, ElementsAre(false, true, true, false, true, false));
}

TEST(CommandOfTest, AsksAShellOnlyWhereItMust) {
  EXPECT_THAT(CommandOf(*SplitCommand("python 'a b'")), ElementsAre("python", "a b"));
  EXPECT_THAT(CommandOf(*SplitCommand("python 'a b' $C")), ElementsAre("sh", "-c", "exec python 'a b' $C"));
}

}  // namespace
}  // namespace lockstep::importer
