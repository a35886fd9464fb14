#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "tests/paths.h"
#include "tests/unit/data/data_files.h"
#include "trainer/data/random.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kTrainImages[] = "train-images-idx3-ubyte", kTrainLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte", kTestLabels[] = "t10k-labels-idx1-ubyte";

// Five training images of 2×3, and two test images, plain or compressed.
class IdxTest : public ::testing::TestWithParam<bool> {
 protected:
  IdxTest() {
    Put(kTrainImages, IdxImages(5, 2, 3));
    Put(kTrainLabels, IdxLabels({3, 1, 4, 1, 5}));
    Put(kTestImages, IdxImages(2, 2, 3));
    Put(kTestLabels, IdxLabels({9, 2}));
  }

  bool compressed() const { return GetParam(); }
  std::string PathOf(const std::string& name) const {
    return folder_.File(name + (compressed() ? ".gz" : ""));
  }
  void PutRaw(const std::string& name, const std::string& bytes) const {
    std::filesystem::remove(PathOf(name));  // a file written anew makes some file systems wait for the disk
    folder_.Write(name + (compressed() ? ".gz" : ""), bytes);
  }
  void Put(const std::string& name, const std::string& text) const {
    PutRaw(name, compressed() ? Gzip(text) : text);
  }
  std::string Raw(const std::string& name) const { return testing::ReadText(PathOf(name)); }
  SourceOptions options() const { return {.format = Format::kIdx, .path = folder_.path().string()}; }
  std::string Problem() const { return Complaint(options()); }

  testing::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(PlainAndCompressed, IdxTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Compressed" : "Plain"; });

TEST_P(IdxTest, ReadsImagesAndLabels) {
  SourceOptions options = this->options();
  options.validation_samples = 2;
  const Loaded loaded(options);
  const DatasetView view = loaded.view();
  EXPECT_EQ(view.features(), 6);
  EXPECT_EQ(view.classes(), 10);
  EXPECT_EQ(view.training(), (Range{0, 3}));
  EXPECT_EQ(view.validation(), (Range{3, 2}));
  EXPECT_EQ(view.test(), (Range{5, 2}));
  EXPECT_THAT(LabelsOf(view, {0, 7}), ElementsAre(3, 1, 4, 1, 5, 9, 2));
  for (int i = 0; i < 7; ++i) {
    const int image = i < 5 ? i : i - 5;
    for (int p = 0; p < 6; ++p) {
      EXPECT_EQ(FeaturesOf(view, {i, 1})[p], static_cast<float>(10 * image + p) * (1.0f / 255.0f))
          << i << " " << p;
    }
  }
}

TEST_P(IdxTest, GivesLabelsAsValuesForARegression) {
  SourceOptions options = this->options();
  options.targets = TargetType::kValue;
  const Loaded loaded(options);
  std::vector<float> values(7);
  loaded.view().GatherValues(Range{0, 7}, values.data());
  EXPECT_THAT(values, ElementsAre(3, 1, 4, 1, 5, 9, 2));
  EXPECT_EQ(loaded.view().classes(), 0);
}

TEST_P(IdxTest, SaysWhichFilesItLooksForWhenTheFolderIsMissing) {
  EXPECT_THAT(Complaint({.format = Format::kIdx, .path = "/nonexistent/mnist"}),
              AllOf(StartsWith("/nonexistent/mnist: no such folder"), HasSubstr(kTrainImages),
                    HasSubstr(kTestLabels)));
}

TEST_P(IdxTest, SaysWhichFilesAreMissing) {
  std::filesystem::remove(PathOf(kTestImages));
  std::filesystem::remove(PathOf(kTrainLabels));
  EXPECT_THAT(Problem(), HasSubstr(std::string(": no ") + kTrainLabels + ", " + kTestImages + ";"));
}

TEST_P(IdxTest, SaysWhenImagesAndLabelsAreNotOfTheSameNumber) {
  Put(kTrainLabels, IdxLabels({3, 1, 4, 1}));
  EXPECT_THAT(Problem(),
              AllOf(StartsWith(PathOf(kTrainImages) + ": has 5 images, but "), HasSubstr("has 4 labels")));
  // Five images of six pixels pass for ten of three by their size alone.
  Put(kTrainLabels, IdxLabels({3, 1, 4, 1, 5, 3, 1, 4, 1, 5}));
  EXPECT_THAT(Problem(),
              AllOf(StartsWith(PathOf(kTrainImages) + ": has 5 images, but "), HasSubstr("has 10 labels")));
}

TEST_P(IdxTest, SaysWhenTestImagesAreOfAnotherSize) {
  Put(kTestImages, IdxImages(2, 3, 3));
  EXPECT_THAT(Problem(),
              AllOf(StartsWith(PathOf(kTestImages)), HasSubstr("have 9 pixels"), HasSubstr("have 6")));
}

TEST_P(IdxTest, SaysWhenImagesAndLabelsAreSwapped) {
  Put(kTrainLabels, IdxImages(5, 2, 3));
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainLabels)), HasSubstr("begins with 0x00000803"),
                               HasSubstr("has images")));
  Put(kTrainLabels, IdxLabels({3, 1, 4, 1, 5}));
  Put(kTrainImages, IdxLabels(std::vector<int>(5 * 6 + 8, 1)));
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainImages)), HasSubstr("has labels")));
}

TEST_P(IdxTest, SaysWhereALabelIsOutOfRange) {
  SourceOptions options = this->options();
  options.classes = 5;
  EXPECT_THAT(Complaint(options),
              StartsWith(PathOf(kTrainLabels) + ": label 5 of sample 4 (byte 12): labels must be below 5"));
}

TEST_P(IdxTest, RefusesNoSamplesAndNoPixels) {
  Put(kTrainLabels, IdxLabels({}));
  EXPECT_THAT(Problem(), StartsWith(PathOf(kTrainLabels) + ": has no samples"));
  Put(kTrainLabels, IdxLabels({3, 1, 4, 1, 5}));
  Put(kTrainImages, BigEndian(0x803) + BigEndian(5) + BigEndian(0) + BigEndian(3) + "12345");
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainImages)), HasSubstr("no pixels")));
}

TEST_P(IdxTest, RefusesDimensionsThatOverflow) {
  const uint32_t huge = 0xffffffff;
  Put(kTrainImages, BigEndian(0x803) + BigEndian(5) + BigEndian(huge) + BigEndian(huge) + "12345");
  EXPECT_THAT(Problem(), StartsWith(PathOf(kTrainImages)));
  Put(kTrainLabels, BigEndian(0x801) + BigEndian(huge) + "12345");
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainLabels)), HasSubstr("asks for 4294967303")));
}

TEST_P(IdxTest, RefusesEveryTruncationAndEveryTail) {
  for (const char* name : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
    const std::string whole = Raw(name);
    for (size_t length = 0; length < whole.size(); ++length) {
      PutRaw(name, whole.substr(0, length));
      ASSERT_THAT(Problem(), StartsWith(folder_.path().string())) << name << " of " << length;
    }
    PutRaw(name, whole + '\0');
    ASSERT_THAT(Problem(), StartsWith(folder_.path().string())) << name;
    PutRaw(name, whole);
  }
  EXPECT_EQ(Problem(), "");
}

TEST_P(IdxTest, SurvivesMutatedFiles) {
  for (const char* name : {kTrainImages, kTrainLabels}) {
    const std::string whole = Raw(name);
    for (uint64_t i = 0; i < 1000; ++i) {
      KeyedRandom random(1, 7, i);
      std::string mutated = whole;
      for (uint64_t flips = 1 + random.Below(4); flips > 0; --flips) {
        mutated[random.Below(mutated.size())] = static_cast<char>(random.Next());
      }
      PutRaw(name, mutated);
      const std::string problem = Problem();  // must not crash, and must name a file if there is one
      ASSERT_THAT(problem, AnyOf(IsEmpty(), StartsWith(folder_.path().string())));
    }
    PutRaw(name, whole);
  }
}

TEST_P(IdxTest, RefusesWhatIsNotARegularFile) {
  std::filesystem::remove(PathOf(kTrainLabels));
  std::filesystem::create_directory(PathOf(kTrainLabels));
  EXPECT_THAT(Problem(), StartsWith(PathOf(kTrainLabels) + ": not a regular file"));
}

class CompressedIdxTest : public IdxTest {};
INSTANTIATE_TEST_SUITE_P(Only, CompressedIdxTest, ::testing::Values(true));

TEST_P(CompressedIdxTest, RefusesSeveralMembers) {
  const std::string labels = IdxLabels({3, 1, 4, 1, 5});
  PutRaw(kTrainLabels, Gzip(labels.substr(0, 3)) + Gzip(labels.substr(3)));
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainLabels)), HasSubstr("member")));
  PutRaw(kTrainLabels, Gzip(labels) + Gzip(labels));
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainLabels)), HasSubstr("member")));
}

TEST_P(CompressedIdxTest, RefusesASizeThatCannotBeTrueBeforeAskingForItsMemory) {
  std::string bomb = Raw(kTrainImages);
  bomb.replace(bomb.size() - 4, 4, LittleEndian(0xfffffff0));
  PutRaw(kTrainImages, bomb);
  EXPECT_THAT(Problem(), AllOf(StartsWith(PathOf(kTrainImages)), HasSubstr("cannot hold the 4294967280")));
}

TEST_P(CompressedIdxTest, SaysWhenACompressedFileLacksItsSuffix) {
  folder_.Write(kTrainLabels, Raw(kTrainLabels));  // the plain name is taken first
  EXPECT_THAT(Problem(), AllOf(StartsWith(folder_.File(kTrainLabels) + ":"), HasSubstr("should end in .gz")));
}

TEST(MnistTest, IsReadAsPublished) {
  const std::string path = std::string(LOCKSTEP_SHARED_DATA) + "/mnist";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no MNIST in " << path;
  const Loaded loaded({.format = Format::kIdx, .path = path, .validation_samples = 10'000});
  const DatasetView view = loaded.view();
  EXPECT_EQ(view.training().count, 50'000);
  EXPECT_EQ(view.test(), (Range{60'000, 10'000}));
  EXPECT_EQ(view.features(), 784);
  EXPECT_EQ(view.classes(), 10);
  EXPECT_THAT(LabelsOf(view, {0, 8}), ElementsAre(5, 0, 4, 1, 9, 2, 1, 3));
  EXPECT_THAT(LabelsOf(view, {60'000, 8}), ElementsAre(7, 2, 1, 0, 4, 1, 4, 9));
  const auto sum = [&](Range range) {
    int64_t total = 0;
    for (int64_t i = range.first; i < range.end(); ++i) {
      for (const std::byte pixel : view.RawSample(i)) total += std::to_integer<int64_t>(pixel);
    }
    return total;
  };
  EXPECT_EQ(sum({0, 60'000}), 1'567'298'545);
  EXPECT_EQ(sum(view.test()), 264'923'200);
}

}  // namespace
}  // namespace lockstep::trainer::data
