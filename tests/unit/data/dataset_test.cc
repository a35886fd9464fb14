#include "trainer/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "tests/unit/data/data_files.h"
#include "trainer/data/block.h"

namespace lockstep::trainer::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three training samples, two for validation, one for testing; two features.
class DatasetViewTest : public ::testing::Test {
 protected:
  DatasetViewTest() {
    plan_.scale = 0.5f;
    plan_.features = 2;
    plan_.classes = 10;
    plan_.training = 3;
    plan_.validation = 2;
    plan_.test = 1;
  }

  OwnedBlock Filled() const {
    OwnedBlock block(plan_.block_bytes());
    WriteBlockHeader(plan_, block.bytes());
    for (int i = 0; i < 12; ++i) block.bytes()[plan_.sample_offset() + i] = static_cast<std::byte>(i);
    for (int32_t i = 0; i < 6; ++i) {
      const int32_t label = 9 - i;
      std::memcpy(&block.bytes()[plan_.target_offset() + i * sizeof label], &label, sizeof label);
    }
    return block;
  }

  DatasetPlan plan_;
};

TEST_F(DatasetViewTest, KnowsItsSplits) {
  const OwnedBlock block = Filled();
  const DatasetView view = DatasetView::FromBlock(block.bytes());
  EXPECT_EQ(view.training(), (Range{0, 3}));
  EXPECT_EQ(view.validation(), (Range{3, 2}));
  EXPECT_EQ(view.test(), (Range{5, 1}));
  EXPECT_EQ(view.features(), 2);
  EXPECT_EQ(view.classes(), 10);
}

TEST_F(DatasetViewTest, GathersRowsInTheOrderAskedFor) {
  const OwnedBlock block = Filled();
  const DatasetView view = DatasetView::FromBlock(block.bytes());
  const std::vector<uint32_t> indices = {4, 0, 4};
  std::vector<float> rows(6);
  view.Gather(indices, rows.data());
  EXPECT_THAT(rows, ElementsAre(4.0f, 4.5f, 0.0f, 0.5f, 4.0f, 4.5f));
  std::vector<uint16_t> halves(6);
  view.GatherBfloat16(indices, halves.data());
  EXPECT_THAT(halves, ElementsAre(0x4080, 0x4090, 0, 0x3f00, 0x4080, 0x4090));
  std::vector<int32_t> labels(3);
  view.GatherLabels(indices, labels.data());
  EXPECT_THAT(labels, ElementsAre(5, 9, 5));
  std::vector<float> values(3);
  view.GatherValues(indices, values.data());
  EXPECT_THAT(values, ElementsAre(5.0f, 9.0f, 5.0f));
}

TEST_F(DatasetViewTest, GathersARange) {
  const OwnedBlock block = Filled();
  const DatasetView view = DatasetView::FromBlock(block.bytes());
  EXPECT_THAT(FeaturesOf(view, {4, 2}), ElementsAre(4.0f, 4.5f, 5.0f, 5.5f));
  EXPECT_THAT(LabelsOf(view, {4, 2}), ElementsAre(5, 4));
  EXPECT_THAT(LabelsOf(view, {4, 0}), ElementsAre());
}

TEST_F(DatasetViewTest, RefusesABlockThatIsNotFilledYet) {
  OwnedBlock block = Filled();
  std::memset(block.bytes().data(), 0, 8);
  EXPECT_THROW(DatasetView::FromBlock(block.bytes()), BadData);
}

TEST_F(DatasetViewTest, RefusesABlockThatIsCutShort) {
  const OwnedBlock block = Filled();
  EXPECT_THROW(DatasetView::FromBlock(block.bytes().first(plan_.block_bytes() - 1)), BadData);
  EXPECT_THROW(DatasetView::FromBlock(block.bytes().first(8)), BadData);
  EXPECT_THROW(DatasetView::FromBlock({}), BadData);
}

TEST_F(DatasetViewTest, RefusesAHeaderThatContradictsItself) {
  for (const auto spoil : std::vector<void (*)(DatasetPlan*)>{
           [](DatasetPlan* plan) { plan->features = 0; },
           [](DatasetPlan* plan) { plan->features = int64_t{1} << 40; },
           [](DatasetPlan* plan) { plan->training = 0; }, [](DatasetPlan* plan) { plan->validation = -1; },
           [](DatasetPlan* plan) { plan->test = int64_t{1} << 33; },
           [](DatasetPlan* plan) { plan->training = std::numeric_limits<int64_t>::max(); },
           [](DatasetPlan* plan) { plan->sample_type = static_cast<SampleType>(7); },
           [](DatasetPlan* plan) { plan->target_type = static_cast<TargetType>(0); },
           [](DatasetPlan* plan) { plan->test = 2; }}) {
    OwnedBlock block = Filled();
    BlockHeader header;
    std::memcpy(&header, block.bytes().data(), sizeof header);
    spoil(&header.plan);
    std::memcpy(block.bytes().data(), &header, sizeof header);
    EXPECT_THROW(DatasetView::FromBlock(block.bytes()), BadData);
  }
}

TEST(SourceTest, DivisibleSourcesGiveTheSameBlockInAnyNumberOfParts) {
  const SourceOptions options{
      .format = Format::kDigits, .validation_samples = 10, .samples = 50, .test_samples = 7};
  const Loaded whole(options);
  for (const int64_t parts : {2, 3, 5}) {
    OwnedBlock block(whole.view().plan().block_bytes());
    for (int64_t part = parts - 1; part >= 0; --part)
      Source::Open(options)->LoadSlice(block.bytes(), part, parts);
    const DatasetView view = DatasetView::FromBlock(block.bytes());
    EXPECT_EQ(FeaturesOf(view, {0, 57}), FeaturesOf(whole.view(), {0, 57}));
    EXPECT_EQ(LabelsOf(view, {0, 57}), LabelsOf(whole.view(), {0, 57}));
  }
}

TEST(SourceTest, OtherSourcesAreLoadedByPartZero) {
  const testing::TemporaryFolder folder;
  const SourceOptions options{.format = Format::kCsv, .path = folder.Write("a.csv", "1,0\n2,1\n")};
  const std::unique_ptr<Source> source = Source::Open(options);
  OwnedBlock block(source->plan().block_bytes());
  std::memset(block.bytes().data(), 0, block.bytes().size());
  source->LoadSlice(block.bytes(), 1, 2);
  EXPECT_THROW(DatasetView::FromBlock(block.bytes()), BadData);
  source->LoadSlice(block.bytes(), 0, 2);
  EXPECT_THAT(FeaturesOf(DatasetView::FromBlock(block.bytes()), {0, 2}), ElementsAre(1.0f, 2.0f));
}

TEST(SourceTest, RefusesABlockTooSmallOrNotAligned) {
  const std::unique_ptr<Source> source = Source::Open({.samples = 2, .test_samples = 1});
  OwnedBlock block(source->plan().block_bytes() + 64);
  EXPECT_THROW(source->LoadInto(block.bytes().first(source->plan().block_bytes() - 1)), BadData);
  EXPECT_THROW(source->LoadInto(block.bytes().subspan(8)), BadData);
}

TEST(SourceTest, RefusesMoreThanTheMemoryLimitBeforeAskingForIt) {
  EXPECT_THAT(Complaint({.samples = 1'000'000'000, .memory_limit = 1'000'000'000}),
              HasSubstr("limit is 1000000000"));
}

TEST(SourceTest, LeavesASampleToTrainOn) {
  EXPECT_EQ(Complaint({.validation_samples = 4, .samples = 5, .test_samples = 1}), "");
  EXPECT_THAT(Complaint({.validation_samples = 5, .samples = 5, .test_samples = 1}),
              HasSubstr("5 samples for validation, out of 5"));
}

TEST(SourceTest, RefusesNegativeCountsAndAMissingPath) {
  EXPECT_THAT(Complaint({.validation_samples = -1}), HasSubstr("negative"));
  EXPECT_THAT(Complaint({.samples = -1}), HasSubstr("negative"));
  EXPECT_THAT(Complaint({.format = Format::kIdx}), HasSubstr("path is empty"));
}

}  // namespace
}  // namespace lockstep::trainer::data
