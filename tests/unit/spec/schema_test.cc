#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "launcher/spec/enums.h"
#include "launcher/spec/json.h"
#include "tests/unit/spec/reference.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using nlohmann::json;

TEST(SchemaTest, IsADraft202012SchemaWithADescriptionForEveryField) {
  const json schema = json::parse(Schema());
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  const std::function<void(const json&, const std::string&)> walk = [&](const json& node,
                                                                        const std::string& path) {
    const json properties = node.value("properties", json::object());
    for (const auto& [name, field] : properties.items()) {
      EXPECT_FALSE(field.value("description", "").empty()) << path << "." << name;
      const json& body = field.contains("items") ? field["items"] : field;
      walk(body, path + "." + name);
    }
  };
  walk(schema, "");
}

TEST(SchemaTest, HasTheWordsOfTheEnumerations) {
  const json spec = json::parse(Schema())["properties"]["spec"]["properties"];
  const auto words = [](const json& field) { return field["enum"].get<std::vector<std::string>>(); };
  const auto expect = [&](const auto& names, const json& field) {
    EXPECT_EQ(words(field), std::vector<std::string>(names.begin(), names.end()));
  };
  expect(kNames<StrategyType>, spec["strategy"]["properties"]["type"]);
  expect(kNames<DeviceType>, spec["devices"]["properties"]["type"]);
  expect(kNames<Framework>, spec["program"]["properties"]["framework"]);
  expect(kLayerTypes,
         spec["trainer"]["properties"]["model"]["properties"]["layers"]["items"]["properties"]["type"]);
  expect(kRoles, spec["roles"]["items"]["properties"]["name"]);
}

// Each word that the schema allows, the reader takes; a field that the schema names, the reader knows.
TEST(SchemaTest, EveryFieldAndWordIsTheReaders) {
  const json schema = json::parse(Schema());
  const std::function<void(const json&, const std::vector<std::string>&)> walk =
      [&](const json& node, const std::vector<std::string>& path) {
        const json properties = node.value("properties", json::object());
        for (const auto& [name, field] : properties.items()) {
          std::vector<std::string> inner = path;
          inner.push_back(name);
          for (const json& word : field.value("enum", json::array())) {
            json manifest = word;
            for (auto step = inner.rbegin(); step != inner.rend(); ++step) {
              manifest = *step == "[]" ? json::array({manifest}) : json{{*step, manifest}};
            }
            manifest["apiVersion"] = "lockstep.dev/v1alpha1";
            if (inner != std::vector<std::string>{"kind"}) manifest["kind"] = "TrainingJob";
            for (const std::string& error : testing::ErrorsOf(manifest.dump())) {
              EXPECT_THAT(error, ::testing::Not(::testing::HasSubstr("is not one of"))) << manifest;
              EXPECT_THAT(error, ::testing::Not(::testing::HasSubstr("is not a field of"))) << manifest;
            }
          }
          const json* body = &field;
          if (body->contains("items")) {
            inner.push_back("[]");
            body = &(*body)["items"];
          }
          walk(*body, inner);
        }
      };
  walk(schema, {});
}

// docs/manifest.md has the tables of Reference() between two marks. LOCKSTEP_UPDATE_DOCS=1 writes them anew.
TEST(SchemaTest, DocumentationHasEveryField) {
  const auto file = testing::InSource("docs/manifest.md");
  const std::string text = testing::TextOf(file);
  constexpr char kBegin[] = "<!-- fields: made from the table of fields, see CONTRIBUTING.md -->\n";
  constexpr char kEnd[] = "\n<!-- end of fields -->";
  const size_t begin = text.find(kBegin);
  const size_t end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t start = begin + sizeof kBegin - 1;
  if (std::getenv("LOCKSTEP_UPDATE_DOCS") != nullptr) {
    std::ofstream(file, std::ios::binary) << text.substr(0, start) + testing::Reference() + text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(start, end - start), testing::Reference())
      << "write it anew: LOCKSTEP_UPDATE_DOCS=1 spec_test --gtest_filter=SchemaTest.Documentation*";
}

}  // namespace
}  // namespace lockstep::spec
