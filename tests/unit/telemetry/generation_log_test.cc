#include "launcher/telemetry/generation_log.h"

#include <gtest/gtest.h>

namespace lockstep::telemetry {
namespace {

TEST(GenerationLogTest, TellsWhenEachBeganAndWhyItEnded) {
  GenerationLog log;
  log.Ended("Signal", "before any", 0);
  EXPECT_TRUE(log.records().empty());
  log.Began(0, 4, 0.5);
  EXPECT_FALSE(log.records()[0].ended);
  log.RestartedAlone();
  log.Ended("OOMKilled", "rank 2", 10);
  log.Ended("Failed", "what followed from it", 11);
  log.Began(1, 3, 12);
  log.Began(2, 4, 20);  // nobody said why
  ASSERT_EQ(log.records().size(), 3u);
  EXPECT_EQ(log.records()[0].world_size, 4);
  EXPECT_EQ(log.records()[0].began, 0.5);
  EXPECT_EQ(log.records()[0].ended, 10);
  EXPECT_EQ(log.records()[0].reason, "OOMKilled");
  EXPECT_EQ(log.records()[0].message, "rank 2");
  EXPECT_EQ(log.records()[0].restarted_alone, 1);
  EXPECT_EQ(log.records()[1].ended, 20);
  EXPECT_EQ(log.records()[1].reason, "");
  EXPECT_FALSE(log.records()[2].ended);
}

TEST(GenerationLogTest, ForgetsTheOldestAndCutsLongMessages) {
  GenerationLog log;
  const int all = static_cast<int>(GenerationLog::kMaxRecords) + 5;
  for (int generation = 0; generation < all; ++generation) {
    log.Began(generation, 1, generation);
    log.Ended("Error", std::string(10'000, 'x'), generation + 0.5);
  }
  EXPECT_EQ(log.records().size(), GenerationLog::kMaxRecords);
  EXPECT_EQ(log.forgotten(), 5);
  EXPECT_EQ(log.records().front().generation, 5);
  EXPECT_EQ(log.records().back().generation, all - 1);
  EXPECT_EQ(log.records().back().message.size(), GenerationLog::kMaxMessage);
}

}  // namespace
}  // namespace lockstep::telemetry
