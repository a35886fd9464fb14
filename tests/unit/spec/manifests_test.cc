// The files of tests/testdata/manifests: what is good, what is bad, and exactly what is said about it. The
// same files are given to a real API server, which must agree.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "launcher/spec/json.h"
#include "launcher/spec/unsupported.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr char kGood[] = "tests/testdata/manifests/good";
constexpr char kBad[] = "tests/testdata/manifests/bad";
constexpr char kExamples[] = "manifests/examples";

// The lines "# WORD: REST" of a file.
std::vector<std::string> Remarks(const std::string& text, const std::string& word) {
  std::vector<std::string> remarks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string start = "# " + word + ": ";
    if (line.starts_with(start)) remarks.push_back(line.substr(start.size()));
  }
  return remarks;
}

std::string FirstSchemaError(const std::string& text) {
  const auto schema = nlohmann::json::parse(Schema());
  for (const Node& document : ParseYaml(text).documents) {
    const Node* kind = document.Find("kind");
    if (kind != nullptr && kind->text == "ConfigMap") continue;
    if (auto broken = testing::BreaksSchema(testing::AsJson(document), schema); !broken.empty())
      return broken;
  }
  return "";
}

TEST(ManifestFilesTest, GoodOnesAreRead) {
  for (const char* folder : {kGood, kExamples}) {
    const auto files = testing::YamlFiles(folder);
    EXPECT_GE(files.size(), 5u);
    for (const auto& file : files) {
      EXPECT_THAT(testing::ErrorsOf(testing::TextOf(file)), IsEmpty()) << file;
      EXPECT_FALSE(ReadManifests(testing::TextOf(file), "").jobs.empty()) << file;
    }
  }
}

TEST(ManifestFilesTest, BadOnesGetExactlyTheirErrors) {
  const auto files = testing::YamlFiles(kBad);
  EXPECT_GE(files.size(), 100u);
  for (const auto& file : files) {
    const std::string text = testing::TextOf(file);
    const auto expected = Remarks(text, "error");
    EXPECT_FALSE(expected.empty()) << file;
    EXPECT_THAT(testing::ErrorsOf(text), ElementsAreArray(expected)) << file;
  }
}

TEST(ManifestFilesTest, SchemaAcceptsTheGoodOnes) {
  for (const char* folder : {kGood, kExamples}) {
    for (const auto& file : testing::YamlFiles(folder))
      EXPECT_EQ(FirstSchemaError(testing::TextOf(file)), "") << file;
  }
}

// A bad file that only a rule of several fields makes bad says so: "# schema: accepts".
TEST(ManifestFilesTest, SchemaRefusesTheBadOnesThatItCanKnow) {
  for (const auto& file : testing::YamlFiles(kBad)) {
    const std::string text = testing::TextOf(file);
    const YamlText yaml = ParseYaml(text);
    if (!yaml.errors.empty() || yaml.documents.empty()) continue;
    const bool accepts = !Remarks(text, "schema").empty();
    EXPECT_EQ(FirstSchemaError(text).empty(), accepts) << file << ": " << FirstSchemaError(text);
  }
}

TEST(ManifestFilesTest, JsonOfAJobReadsAsTheSameJob) {
  for (const char* folder : {kGood, kExamples}) {
    for (const auto& file : testing::YamlFiles(folder)) {
      for (const TrainingJob& job : ReadManifests(testing::TextOf(file), "").jobs) {
        EXPECT_EQ(testing::JobOf(ToJson(job)), job) << file << "\n" << ToJson(job, 2);
        EXPECT_EQ(testing::JobOf(ToJson(job, 2)), job) << file;
        EXPECT_EQ(ToJson(testing::JobOf(ToJson(job))), ToJson(job)) << file;
      }
    }
  }
}

TEST(ManifestFilesTest, JsonOfAJobKeepsTheSchema) {
  const auto schema = nlohmann::json::parse(Schema());
  for (const auto& file : testing::YamlFiles(kGood)) {
    for (const TrainingJob& job : ReadManifests(testing::TextOf(file), "").jobs) {
      EXPECT_EQ(testing::BreaksSchema(nlohmann::json::parse(ToJson(job)), schema), "") << file;
    }
  }
}

TEST(ManifestFilesTest, ExamplesCanBeRunByThisVersion) {
  for (const auto& file : testing::YamlFiles(kExamples)) {
    for (const TrainingJob& job : ReadManifests(testing::TextOf(file), "").jobs) {
      for (const Finding& finding : UnsupportedFields(job)) ADD_FAILURE() << file << ": " << finding.path;
    }
  }
}

}  // namespace
}  // namespace lockstep::spec
