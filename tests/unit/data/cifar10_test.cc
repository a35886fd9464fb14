#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/paths.h"
#include "tests/unit/data/data_files.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Record(int label, int first_pixel) {
  std::string record(1, static_cast<char>(label));
  for (int plane = 0; plane < 3; ++plane) record.append(1024, static_cast<char>(first_pixel + plane));
  record[3072] = static_cast<char>(first_pixel + 9);
  return record;
}

class Cifar10Test : public ::testing::Test {
 protected:
  Cifar10Test() {
    folder_.Write("data_batch_1.bin", Record(3, 10) + Record(9, 20));
    folder_.Write("data_batch_2.bin", Record(0, 30));
    folder_.Write("test_batch.bin", Record(7, 40));
  }

  SourceOptions options() const { return {.format = Format::kCifar10, .path = folder_.path().string()}; }

  testing::TemporaryFolder folder_;
};

TEST_F(Cifar10Test, ReadsAllBatches) {
  const Loaded loaded(options());
  const DatasetView view = loaded.view();
  EXPECT_EQ(view.sample_shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(view.classes(), 10);
  EXPECT_EQ(view.training().count, 3);
  EXPECT_EQ(view.test(), (Range{3, 1}));
  EXPECT_THAT(LabelsOf(view, {0, 4}), ElementsAre(3, 9, 0, 7));
  for (int i = 0; i < 4; ++i) {
    // The planes of the file come interleaved.
    const std::vector<float> features = FeaturesOf(view, {i, 1});
    const auto pixel = [&](int plane) { return static_cast<float>(10 * (i + 1) + plane) * (1.0f / 255.0f); };
    EXPECT_THAT(std::vector<float>(features.begin(), features.begin() + 5),
                ElementsAre(pixel(0), pixel(1), pixel(2), pixel(0), pixel(1)));
    EXPECT_EQ(features.back(), pixel(9));
  }
}

TEST_F(Cifar10Test, SaysWhichFilesAreMissing) {
  EXPECT_THAT(Complaint({.format = Format::kCifar10, .path = "/nonexistent"}),
              AllOf(StartsWith("/nonexistent: no such folder"), HasSubstr("data_batch_1.bin")));
  std::filesystem::remove(folder_.File("test_batch.bin"));
  EXPECT_THAT(Complaint(options()), HasSubstr(": no test_batch.bin"));
  std::filesystem::remove(folder_.File("data_batch_1.bin"));
  EXPECT_THAT(Complaint(options()), HasSubstr(": no data_batch_1.bin"));
}

TEST_F(Cifar10Test, RefusesBrokenRecordsAndNone) {
  folder_.Write("data_batch_2.bin", Record(0, 30) + "x");
  EXPECT_THAT(Complaint(options()), StartsWith(folder_.File("data_batch_2.bin") + ": has 3074 bytes"));
  folder_.Write("data_batch_2.bin", "");
  EXPECT_THAT(Complaint(options()), StartsWith(folder_.File("data_batch_2.bin") + ": has 0 bytes"));
}

TEST_F(Cifar10Test, SaysWhereALabelIsOutOfRange) {
  folder_.Write("data_batch_1.bin", Record(3, 10) + Record(10, 20));
  EXPECT_THAT(Complaint(options()), StartsWith(folder_.File("data_batch_1.bin") +
                                               ": label 10 at byte 3073: labels must be below 10"));
}

TEST(Cifar10DataTest, IsReadAsPublished) {
  const std::string path = std::string(LOCKSTEP_SHARED_DATA) + "/cifar10";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no CIFAR-10 in " << path;
  const Loaded loaded({.format = Format::kCifar10, .path = path});
  const DatasetView view = loaded.view();
  ASSERT_GE(view.training().count, 10'000);
  EXPECT_THAT(LabelsOf(view, {0, 8}), ElementsAre(6, 9, 9, 4, 1, 1, 2, 7));
  int64_t total = 0;
  for (int64_t i = 0; i < 10'000; ++i) {
    for (const std::byte pixel : view.RawSample(i)) total += std::to_integer<int64_t>(pixel);
  }
  EXPECT_EQ(total, 3'718'380'578);
}

}  // namespace
}  // namespace lockstep::trainer::data
