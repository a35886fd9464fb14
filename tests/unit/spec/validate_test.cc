#include "launcher/spec/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using ::testing::HasSubstr;
using testing::JobOf;
using testing::WithTrainer;

TEST(CheckBatchTest, AcceptsDivisors) {
  for (const int world : {1, 2, 4, 8, 256}) EXPECT_TRUE(CheckBatchDivides(256, world).ok()) << world;
}

TEST(CheckBatchTest, NamesTheNearestSizesThatWouldDo) {
  EXPECT_EQ(CheckBatchDivides(256, 6).message(),
            "a batch of 256 is not divisible by 6 processes; 4 or 8 processes would divide it, and 6 "
            "processes a batch of "
            "252 or 258");
  EXPECT_THAT(CheckBatchDivides(7, 2).message(),
              HasSubstr("; 1 or 7 processes would divide it, and 2 processes a batch of 6 or 8"));
  // More processes than samples: none above can do, no smaller batch either.
  EXPECT_THAT(CheckBatchDivides(4, 6).message(),
              HasSubstr("; 4 processes would divide it, and 6 processes a batch of 6"));
}

TEST(CheckBatchTest, IsQuickForHugeSizes) {
  EXPECT_FALSE(CheckBatchDivides(INT64_MAX, 2).ok());
  EXPECT_FALSE(CheckBatchDivides(2, INT64_MAX).ok());
  EXPECT_FALSE(CheckBatchDivides(INT64_MAX, INT64_MAX - 1).ok());
  EXPECT_FALSE(CheckBatchDivides((int64_t{1} << 24) - 3, 10'000'000).ok());
}

TEST(CheckBatchTest, RefusesNonsense) {
  EXPECT_FALSE(CheckBatchDivides(0, 1).ok());
  EXPECT_FALSE(CheckBatchDivides(1, 0).ok());
}

TEST(ValidateTest, AJobThatWasReadKeepsTheRules) { EXPECT_TRUE(Validate(JobOf(WithTrainer(""))).empty()); }

TEST(ValidateTest, HoldsForJobsMadeInCode) {
  TrainingJob job = JobOf(WithTrainer(""));
  job.roles[0].processes_per_replica = 5;
  const auto findings = Validate(job);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].path, "spec.trainer.batchSize");
}

TEST(ValidateTest, AJobWithoutRolesDoesNotCrash) { EXPECT_FALSE(Validate(TrainingJob{}).empty()); }

}  // namespace
}  // namespace lockstep::spec
