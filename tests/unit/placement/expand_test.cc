#include "launcher/placement/expand.h"

#include <gtest/gtest.h>

namespace lockstep::placement {
namespace {

TEST(ExpandTest, FillsInWhatItKnowsAndLeavesTheRest) {
  const Environment variables = {{"RANK", "3"}, {"EMPTY", ""}, {"NESTED", "$(RANK)"}};
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"--rank=$(RANK)", "--rank=3"},
      {"$(RANK)$(RANK) of $(EMPTY)x", "33 of x"},
      {"$(NESTED)", "$(RANK)"},  // a value is no text to fill in
      {"$(date) $$ $RANK ${RANK} {RANK}", "$(date) $$ $RANK ${RANK} {RANK}"},
      {"$$(RANK)", "$(RANK)"},
      {"$$(date)", "$$(date)"},
      {"$$$(RANK)", "$$(RANK)"},
      {"$(RANK", "$(RANK"},
      {"$(", "$("},
      {"$()", "$()"},
      {"$(echo $(RANK))", "$(echo 3)"},
      {"awk '{print $(NF)}'", "awk '{print $(NF)}'"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(Expand(text, variables), expected) << text;
}

}  // namespace
}  // namespace lockstep::placement
