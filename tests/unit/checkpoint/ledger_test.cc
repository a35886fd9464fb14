#include "trainer/checkpoint/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/unit/checkpoint/snapshots.h"

namespace lockstep::trainer::checkpoint {
namespace {

using ::testing::HasSubstr;

// Ten samples an epoch, batches of four: steps 1 2 3 are epoch 0, steps 4 5 6 epoch 1.
class LedgerTest : public ::testing::Test {
 protected:
  LedgerWriter Writer(int64_t generation, int64_t resumed_step) const {
    Result<LedgerWriter> writer = LedgerWriter::Open(path_, generation, resumed_step);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return std::move(*writer);
  }
  static void Do(LedgerWriter& writer, int64_t first_step, int64_t last_step) {
    for (int64_t step = first_step; step <= last_step; ++step) {
      const int64_t epoch = (step - 1) / 3, first = (step - 1) % 3 * 4;
      ASSERT_TRUE(writer.Append(step, epoch, first, std::min<int64_t>(4, 10 - first)).ok());
    }
  }
  Result<LedgerSummary> Check(int64_t epochs = 2) const {
    const auto ledger = ReadLedger(path_);
    EXPECT_TRUE(ledger.ok()) << ledger.status().ToString();
    return CommittedOnce(*ledger, 10, epochs);
  }
  void ExpectWrong(const std::string& why, int64_t epochs = 2) const {
    const Result<LedgerSummary> result = Check(epochs);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr(why));
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.File("ledger");
};

TEST_F(LedgerTest, AcceptsAnUndisturbedRun) {
  LedgerWriter writer = Writer(0, 0);
  Do(writer, 1, 6);
  const Result<LedgerSummary> summary = Check();
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->steps, 6);
  EXPECT_EQ(summary->repeated, 0);
  EXPECT_EQ(summary->generations, 1);
}

TEST_F(LedgerTest, AcceptsAGenerationThatDoesLostStepsAgain) {
  LedgerWriter first = Writer(0, 0);
  Do(first, 1, 5);
  LedgerWriter second = Writer(1, 2);
  Do(second, 3, 3);
  LedgerWriter third = Writer(2, 2);
  Do(third, 3, 6);
  const Result<LedgerSummary> summary = Check();
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->steps, 6);
  EXPECT_EQ(summary->repeated, 4);
  EXPECT_EQ(summary->generations, 3);
}

TEST_F(LedgerTest, DoesNotCountWhatAnOldGenerationNotesAfterANewOneStarted) {
  LedgerWriter old = Writer(0, 0);
  Do(old, 1, 3);
  LedgerWriter next = Writer(1, 2);
  Do(old, 4, 4);
  Do(next, 3, 6);
  EXPECT_TRUE(Check().ok()) << Check().status().ToString();
}

TEST_F(LedgerTest, FindsALostStep) {
  LedgerWriter writer = Writer(0, 0);
  Do(writer, 1, 2);
  Do(writer, 4, 6);
  ExpectWrong("step 4 (epoch 1, samples 0 to 4) comes after step 2");
}

TEST_F(LedgerTest, FindsStepsLostByResumingTooFarAhead) {
  LedgerWriter first = Writer(0, 0);
  Do(first, 1, 2);
  LedgerWriter second = Writer(1, 3);
  Do(second, 4, 6);
  ExpectWrong("generation 1 resumes from step 3, but only 2 were done");
}

TEST_F(LedgerTest, FindsSamplesLostAndDoubled) {
  LedgerWriter writer = Writer(0, 0);
  ASSERT_TRUE(writer.Append(1, 0, 0, 4).ok());
  ASSERT_TRUE(writer.Append(2, 0, 5, 4).ok());
  ExpectWrong("step 2 (epoch 0, samples 5 to 9) where sample 4 of 10 of epoch 0 was next");
  std::filesystem::remove(path_);
  LedgerWriter again = Writer(0, 0);
  ASSERT_TRUE(again.Append(1, 0, 0, 4).ok());
  ASSERT_TRUE(again.Append(2, 0, 3, 4).ok());
  ExpectWrong("where sample 4");
  std::filesystem::remove(path_);
  LedgerWriter beyond = Writer(0, 0);
  ASSERT_TRUE(beyond.Append(1, 0, 0, 11).ok());
  ExpectWrong("where sample 0");
}

TEST_F(LedgerTest, FindsAnEndTooEarlyOrTooLate) {
  LedgerWriter writer = Writer(0, 0);
  Do(writer, 1, 5);
  ExpectWrong("ends at sample 8 of epoch 1");
  ExpectWrong("comes after the last epoch", 1);
}

TEST_F(LedgerTest, LeavesOutARecordCutShortAndWritesOnBehindTheWholeOnes) {
  LedgerWriter first = Writer(0, 0);
  Do(first, 1, 4);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 11);
  EXPECT_EQ(ReadLedger(path_)->size(), 4u);
  LedgerWriter second = Writer(1, 3);
  Do(second, 4, 6);
  EXPECT_TRUE(Check().ok()) << Check().status().ToString();
}

TEST_F(LedgerTest, RefusesADamagedRecord) {
  LedgerWriter writer = Writer(0, 0);
  Do(writer, 1, 6);
  std::string bytes = testing::ReadText(path_);
  bytes[100] ^= 1;
  WriteBytes(path_, bytes);
  const auto ledger = ReadLedger(path_);
  ASSERT_FALSE(ledger.ok());
  EXPECT_THAT(ledger.status().message(), HasSubstr("record 1 has a wrong checksum"));
}

TEST_F(LedgerTest, SaysWhenItCannotBeOpened) {
  EXPECT_FALSE(LedgerWriter::Open(folder_.File("none/ledger"), 0, 0).ok());
  EXPECT_EQ(ReadLedger(folder_.File("none")).status().code(), StatusCode::kNotFound);
  LedgerWriter writer = Writer(0, 0);
  EXPECT_EQ(writer.Append(1, 0, 0, 0).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
