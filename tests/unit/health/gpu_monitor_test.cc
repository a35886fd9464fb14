#include "launcher/health/gpu_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/paths.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::health {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Pair;

std::string Library(const std::string& table) {
  return LOCKSTEP_BIN_DIR "/../tests/unit/placement/" + table + "/libnvidia-ml.so.1";
}

// A loop, and what a monitor of one machine told on it.
class GpuMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = std::move(*loop);
    ::setenv("FAKE_NVML_EVENTS", folder_.File("events").c_str(), 1);
  }
  void TearDown() override { ::unsetenv("FAKE_NVML_EVENTS"); }

  std::unique_ptr<GpuMonitor> Watch(const std::string& table, std::vector<int> gpus) {
    auto monitor =
        GpuMonitor::Create(*loop_, {.nvml_library = Library(table),
                                    .gpus = std::move(gpus),
                                    .interval = 5ms,
                                    .on_readings = [this](const auto& read) { readings_ = read; },
                                    .on_xid = [this](int gpu, int xid) { xids_.emplace_back(gpu, xid); }});
    EXPECT_TRUE(monitor.ok()) << monitor.status().message();
    return monitor.ok() ? std::move(*monitor) : nullptr;
  }
  bool RunUntil(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!condition() && std::chrono::steady_clock::now() < deadline) loop_->RunOnce(50ms);
    return condition();
  }
  void Happens(const std::string& line) {
    std::ofstream(folder_.File("events"), std::ios::app) << line << "\n";
  }

  const lockstep::testing::TemporaryFolder folder_;
  std::unique_ptr<EventLoop> loop_;
  std::vector<GpuReading> readings_;
  std::vector<std::pair<int, int>> xids_;
};

TEST_F(GpuMonitorTest, ReadsEachGpu) {
  const auto monitor = Watch("eight_h100", {1, 6});
  ASSERT_TRUE(RunUntil([&] { return !readings_.empty(); }));
  ASSERT_EQ(readings_.size(), 2u);
  EXPECT_EQ(readings_[1].index, 6);
  const auto& health = readings_[1].health;
  EXPECT_EQ(health.lost, "");
  EXPECT_DOUBLE_EQ(*health.utilization, 0.96);
  EXPECT_DOUBLE_EQ(*health.power_watts, 656);
  EXPECT_DOUBLE_EQ(*health.temperature, 66);
  EXPECT_EQ(*health.memory_used, 1 << 20);
  EXPECT_EQ(*health.ecc_errors, 0);
  EXPECT_EQ(*health.throttle_reasons, 0u);
  EXPECT_FALSE(readings_[1].computing) << "nothing of it is recorded";
}

TEST_F(GpuMonitorTest, SaysWhatAGpuComputesWithWhereTheDriverTells) {
  const auto monitor = Watch("one_t4", {0});
  ASSERT_TRUE(RunUntil([&] { return !readings_.empty(); }));
  ASSERT_TRUE(readings_[0].computing);
  EXPECT_EQ(readings_[0].computing->cuda_cores, 2560);
  EXPECT_DOUBLE_EQ(readings_[0].computing->max_clock, 1.59e9);
  EXPECT_EQ(readings_[0].computing->major, 7);
  EXPECT_EQ(readings_[0].computing->minor, 5);
}

TEST_F(GpuMonitorTest, TellsOfXidErrorsInOrder) {
  const auto monitor = Watch("eight_h100", {0, 3});
  ASSERT_TRUE(RunUntil([&] { return !readings_.empty(); }));
  Happens("3 xid 31");
  Happens("0 xid 79");
  ASSERT_TRUE(RunUntil([&] { return xids_.size() >= 2; }));
  EXPECT_THAT(xids_, ElementsAre(Pair(3, 31), Pair(0, 79)));
}

TEST_F(GpuMonitorTest, IsSilentAboutGpusOfOthers) {
  const auto monitor = Watch("eight_h100", {0});
  ASSERT_TRUE(RunUntil([&] { return !readings_.empty(); }));
  Happens("5 xid 79");
  Happens("0 xid 13");
  ASSERT_TRUE(RunUntil([&] { return !xids_.empty(); }));
  EXPECT_THAT(xids_, ElementsAre(Pair(0, 13)));
}

TEST_F(GpuMonitorTest, SeesAGpuGetLost) {
  const auto monitor = Watch("one_t4", {0});
  ASSERT_TRUE(RunUntil([&] { return !readings_.empty(); }));
  EXPECT_EQ(readings_[0].health.lost, "");
  Happens("0 lost");
  ASSERT_TRUE(RunUntil([&] { return !readings_[0].health.lost.empty(); }));
  EXPECT_EQ(readings_[0].health.lost, "GPU is lost");
}

TEST_F(GpuMonitorTest, EndsWithoutADriver) {
  const auto start = std::chrono::steady_clock::now();
  Watch("no_driver", {0}).reset();
  Watch("not_there", {0}).reset();
  Watch("one_t4", {7}).reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

}  // namespace
}  // namespace lockstep::health
