#include "launcher/spec/yaml_out.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/spec/yaml_tree.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using Json = nlohmann::ordered_json;

TEST(YamlOutTest, WritesBlocksAndNumbersOnOneLine) {
  const Json value = {{"numbers", {1, 2.5}},
                      {"words", {"a", "b c"}},
                      {"script", "set -e\nif x; then\n  y\n\nfi\n"},
                      {"steps", {"one\ntwo"}},
                      {"none", Json::array()}};
  EXPECT_EQ(ToYaml(value), R"(numbers: [1, 2.5]
words:
- a
- b c
script: |
  set -e
  if x; then
    y

  fi
steps:
- |-
  one
  two
none: []
)");
}

// Whatever is in a text, it is read as it was.
TEST(YamlOutTest, IsReadAsItWasWritten) {
  for (const std::string text : {"a\n", "a\nb", "\na", " a\nb", "a\n b\n", "a\nb\n\n", "a \nb", "a\n \nb",
                                 "a\n\tb", "a: b\n- c\n# d\n", "\n", "---\n...\n", "yes", "1", "", "'",
                                 "\"\n\"", "\xc3\xa9\n\xc3\xa9", "a\r\nb\n"}) {
    const Json value = {{"in", {{"list", {text, {{"key", text}}}}}}};
    const YamlText read = ParseYaml(ToYaml(value));
    ASSERT_EQ(read.documents.size(), 1u) << ToYaml(value);
    EXPECT_EQ(testing::AsJson(read.documents[0]).dump(), nlohmann::json(value).dump()) << ToYaml(value);
  }
}

}  // namespace
}  // namespace lockstep::spec
