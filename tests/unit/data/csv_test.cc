#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/data/data_files.h"
#include "trainer/data/random.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CsvTest : public ::testing::Test {
 protected:
  SourceOptions Options(const std::string& text, TargetType targets = TargetType::kLabel) const {
    std::filesystem::remove(
        folder_.File("data.csv"));  // a file written anew makes some file systems wait for the disk
    return {.format = Format::kCsv, .path = folder_.Write("data.csv", text), .targets = targets};
  }
  // The complaint about a file of this text, without the file's path and colon.
  std::string Problem(const std::string& text, TargetType targets = TargetType::kLabel) const {
    const std::string problem = Complaint(Options(text, targets)), prefix = folder_.File("data.csv") + ":";
    EXPECT_THAT(problem, StartsWith(prefix));
    return problem.substr(std::min(problem.size(), prefix.size()));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(CsvTest, ReadsFeaturesThenTheLabel) {
  const Loaded loaded(Options("1,-2.5,0\n3e2,.5,2\n"));
  const DatasetView view = loaded.view();
  EXPECT_EQ(view.features(), 2);
  EXPECT_EQ(view.classes(), 3);
  EXPECT_EQ(view.training().count, 2);
  EXPECT_EQ(view.test().count, 0);
  EXPECT_THAT(FeaturesOf(view, {0, 2}), ElementsAre(1.0f, -2.5f, 300.0f, 0.5f));
  EXPECT_THAT(LabelsOf(view, {0, 2}), ElementsAre(0, 2));
}

TEST_F(CsvTest, ReadsValuesForARegression) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "1.,1.\n";
  SourceOptions options = Options(text, TargetType::kValue);
  options.validation_samples = 80;
  const Loaded loaded(options);
  EXPECT_EQ(loaded.view().training().count, 320);
  EXPECT_EQ(loaded.view().classes(), 0);
  std::vector<float> values(400);
  loaded.view().GatherValues(Range{0, 400}, values.data());
  EXPECT_EQ(values, std::vector<float>(400, 1.0f));
  EXPECT_EQ(FeaturesOf(loaded.view(), {0, 400}), std::vector<float>(400, 1.0f));
  std::vector<int32_t> labels(1);
  EXPECT_THROW(loaded.view().GatherLabels(Range{0, 1}, labels.data()), BadData);
}

TEST_F(CsvTest, AcceptsWhatOtherProgramsWrite) {
  for (const char* text :
       {"1,2,0\n3,4,1", "1,2,0\r\n3,4,1\r\n", "x,y,label\n1,2,0\n3,4,1\n", " 1 ,\t2, 0 \n\n3,4,1\n\n",
        "\xef\xbb\xbf+1.0e0,2,0\n3,4,+1\n", "\n\"a b\",c,d\n1,2,0\n3,4,1\n"}) {
    const Loaded loaded(Options(text));
    EXPECT_THAT(FeaturesOf(loaded.view(), {0, 2}), ElementsAre(1.0f, 2.0f, 3.0f, 4.0f)) << text;
    EXPECT_THAT(LabelsOf(loaded.view(), {0, 2}), ElementsAre(0, 1)) << text;
  }
}

TEST_F(CsvTest, ReadsAFolderWithATestSet) {
  folder_.Write("train.csv", "1,0\n2,1\n");
  folder_.Write("test.csv", "3,4\n");
  const SourceOptions options{.format = Format::kCsv, .path = folder_.path().string()};
  const Loaded loaded(options);
  EXPECT_EQ(loaded.view().test(), (Range{2, 1}));
  EXPECT_EQ(loaded.view().classes(), 5);
  EXPECT_THAT(LabelsOf(loaded.view(), {0, 3}), ElementsAre(0, 1, 4));
  folder_.Write("test.csv", "3,4,5\n");
  EXPECT_THAT(Complaint(options), StartsWith(folder_.File("test.csv") + ": 3 columns where train.csv has 2"));
}

TEST_F(CsvTest, SaysLineAndColumnOfWhatIsNotANumber) {
  EXPECT_THAT(Problem("1,2,0\n3,abc,1\n"), StartsWith("2:3: \"abc\" is not a finite number"));
  EXPECT_THAT(Problem("1,2,0\n3,  4x,1\n"), StartsWith("2:5: \"4x\" is not"));
  EXPECT_THAT(Problem("1,2,0\n\n3,,1\n"), StartsWith("3:3: an empty field"));
  EXPECT_THAT(Problem("1,2,0\n3,4,\n"), StartsWith("2:5: an empty field"));
  for (const char* wrong : {"nan", "inf", "1e999", "0x10", "1 2", "--1", "+-1", "1,5;3", "\"1\""}) {
    EXPECT_THAT(Problem("1,2,0\n3," + std::string(wrong) + ",1\n"), StartsWith("2:")) << wrong;
  }
}

TEST_F(CsvTest, TakesAFirstLineWithATypingErrorForData) {
  EXPECT_THAT(Problem("1,2o,0\n3,4,1\n"), StartsWith("1:3: \"2o\" is not"));
}

TEST_F(CsvTest, RefusesLinesOfAnotherLength) {
  EXPECT_THAT(Problem("1,2,0\n3,4\n"), StartsWith("2:1: 2 columns where the first sample has 3"));
  EXPECT_THAT(Problem("1,2,0\n3,4,5,1\n"), StartsWith("2:1: 4 columns"));
  EXPECT_THAT(Problem("1\n2\n"), StartsWith("1:1: one column"));
}

TEST_F(CsvTest, RefusesLabelsThatAreNone) {
  EXPECT_THAT(Problem("1,0\n2,-1\n"), StartsWith("2:3: label -1: labels are whole numbers"));
  EXPECT_THAT(Problem("1,0\n2,0.5\n"), StartsWith("2:3: label 0.5"));
  EXPECT_THAT(Problem("1,0\n2,1e9\n"), StartsWith("2:3: label 1e+09"));
  SourceOptions options = Options("1,0\n2,3\n");
  options.classes = 3;
  EXPECT_THAT(Complaint(options), HasSubstr(":2:3: label 3: labels are whole numbers from 0 to 2"));
}

TEST_F(CsvTest, RefusesAFileWithoutSamples) {
  EXPECT_THAT(Problem(""), StartsWith(" has no samples"));
  EXPECT_THAT(Problem("a,b,c\n"), StartsWith(" has no samples"));
}

TEST_F(CsvTest, SaysWhatItLooksFor) {
  EXPECT_THAT(Complaint({.format = Format::kCsv, .path = "/nonexistent.csv"}),
              AllOf(StartsWith("/nonexistent.csv: no such file"), HasSubstr("train.csv")));
  EXPECT_THAT(Complaint({.format = Format::kCsv, .path = folder_.path().string()}),
              HasSubstr("no train.csv"));
  EXPECT_THAT(Complaint({.format = Format::kCsv, .path = "/dev/zero"}),
              StartsWith("/dev/zero: not a regular file"));
}

TEST_F(CsvTest, SurvivesAnyText) {
  const std::string whole = "a,b,c\n1,2.5,0\n3,-4e3,1\n";
  constexpr char kPieces[] = "0123456789.,,\n\r\t +-eE;\"\0abcnif";
  for (uint64_t i = 0; i < 3000; ++i) {
    KeyedRandom random(1, 8, i);
    std::string mutated = whole;
    for (uint64_t changes = 1 + random.Below(6); changes > 0; --changes) {
      mutated[random.Below(mutated.size())] = kPieces[random.Below(sizeof kPieces)];
    }
    ASSERT_THAT(Complaint(Options(mutated)), AnyOf(IsEmpty(), StartsWith(folder_.path().string())));
  }
}

}  // namespace
}  // namespace lockstep::trainer::data
