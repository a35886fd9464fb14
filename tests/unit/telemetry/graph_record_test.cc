#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/run_record.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

TEST(GraphRecordTest, IsThereOnceAllThatTrainHaveSaidTheirLayers) {
  const lockstep::testing::TemporaryFolder folder;
  RunRecord record(folder.path(), [](const std::string& line) { ADD_FAILURE() << line; });
  JobMetrics metrics(
      {.name = "mnist", .namespace_name = "default", .strategy = "Mirrored", .framework = "Lockstep"});
  JobState state({.name = "mnist", .world_size = 3}, metrics, At(0), &record);
  const auto recorded = [&] {
    std::string all;
    for (const auto& file : std::filesystem::directory_iterator(folder.File("tensorboard"))) {
      all += lockstep::testing::ReadText(file.path());
    }
    return all;
  };
  const auto count = [&](const std::string& text) {
    const std::string all = recorded();
    int times = 0;
    for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++times;
    return times;
  };
  const auto begin = [&](int generation, double at) {
    state.GenerationStarted(generation, At(at));
    state.RankStarted({.rank = 0}, 10, At(at));
    state.RankStarted({.rank = 1}, 11, At(at));
    state.RankStarted({.rank = 2, .role = "ps", .steps = false}, 12, At(at));
  };
  const auto say = [&](int rank, double at) {
    state.ApplyEvent(
        rank, contract::LayerEvent{.name = "dense", .type = "Dense", .output = "10", .device = "d"}, At(at));
    state.ApplyEvent(rank, contract::ReadyEvent{}, At(at));
  };
  begin(0, 0);
  say(1, 1);
  EXPECT_EQ(count("dense"), 0);
  say(0, 2);
  EXPECT_EQ(count("replica_0/dense"), 1);
  EXPECT_EQ(count("replica_1/dense"), 1);
  // The same again is not written again.
  begin(1, 3);
  say(0, 4);
  say(1, 5);
  EXPECT_EQ(count("replica_1/dense"), 1);
}

TEST(GraphRecordTest, IsBoundedWhateverAProcessSaysOfItsLayers) {
  const lockstep::testing::TemporaryFolder folder;
  RunRecord record(folder.path(), [](const std::string& line) { ADD_FAILURE() << line; });
  JobMetrics metrics(
      {.name = "big", .namespace_name = "default", .strategy = "Mirrored", .framework = "None"});
  JobState state({.name = "big", .world_size = 1}, metrics, At(0), &record);
  state.GenerationStarted(0, At(0));
  state.RankStarted({.rank = 0}, 10, At(0));
  const std::string endless(50'000, 'x');
  for (int i = 0; i < 5000; ++i) {
    state.ApplyEvent(
        0,
        contract::LayerEvent{.index = i, .name = endless, .type = endless, .output = "10", .device = endless},
        At(1));
  }
  state.ApplyEvent(0, contract::ReadyEvent{}, At(2));
  uintmax_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.File("tensorboard"))) {
    size += file.file_size();
  }
  EXPECT_GT(size, 256u * 2000);
  EXPECT_LT(size, 8u << 20);
}

}  // namespace
}  // namespace lockstep::telemetry
