#include "common/contract/event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::contract {
namespace {

TEST(EventTest, StepSurvivesTheWayThroughALine) {
  StepEvent step{.step = 120,
                 .total_steps = 392,
                 .epoch = 1,
                 .samples = 256,
                 .loss = 0.31,
                 .loss_average = 0.33,
                 .learning_rate = 0.001,
                 .seconds = 0.0028,
                 .collective_seconds = 0.0004,
                 .data_wait_seconds = 0.0001,
                 .collective_bytes = 1077288,
                 .flops = 3.1e8,
                 .gradients_dropped = 3,
                 .gradient_age = 2};
  const std::string line = EncodeEvent(step);
  ASSERT_EQ(line.back(), '\n');
  const Result<Event> event = ParseEvent(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  const auto& read = std::get<StepEvent>(*event);
  EXPECT_EQ(read.step, 120);
  EXPECT_EQ(read.total_steps, 392);
  EXPECT_EQ(read.collective_bytes, 1077288);
  EXPECT_DOUBLE_EQ(read.loss, 0.31);
  EXPECT_DOUBLE_EQ(read.loss_average, 0.33);
  EXPECT_DOUBLE_EQ(read.flops, 3.1e8);
  EXPECT_EQ(read.gradients_dropped, 3);
  EXPECT_DOUBLE_EQ(read.gradient_age, 2);
}

TEST(EventTest, ReadsTheLineThatTheContractShows) {
  const auto event = ParseEvent(
      R"({"event":"step","step":120,"epoch":1,"samples":256,"loss":0.31,"seconds":0.0028,"collective_seconds":0.0004})");
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(std::get<StepEvent>(*event).samples, 256);
}

TEST(EventTest, OnlyAProcessThatSaysSoRegroups) {
  const auto plain = ParseEvent(R"({"event":"ready"})");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(std::get<ReadyEvent>(*plain).regroups);
  const auto regroups = ParseEvent(R"({"event":"ready","regroups":true})");
  ASSERT_TRUE(regroups.ok());
  EXPECT_TRUE(std::get<ReadyEvent>(*regroups).regroups);
  EXPECT_EQ(std::get<ReadyEvent>(*regroups).layers, "");
  const std::string ready = EncodeEvent(ReadyEvent{.layers = "dense, dense_1 on CPU:0"});
  const auto cut = ParseEvent(std::string_view(ready).substr(0, ready.size() - 1));
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(std::get<ReadyEvent>(*cut).layers, "dense, dense_1 on CPU:0");

  const std::string line = EncodeEvent(RegroupEvent{.step = 120});
  const auto parked = ParseEvent(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(parked.ok());
  EXPECT_EQ(std::get<RegroupEvent>(*parked).step, 120);
}

TEST(EventTest, ALayerSurvivesTheWayThroughALine) {
  const std::string line = EncodeEvent(LayerEvent{.index = 3,
                                                  .name = "conv2d_1",
                                                  .type = "Conv2D",
                                                  .output = "24,24,64",
                                                  .device = "/job:worker/replica:0/task:1/device:GPU:0"});
  const auto event = ParseEvent(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(event.ok()) << event.status().ToString();
  const auto& read = std::get<LayerEvent>(*event);
  EXPECT_EQ(read.index, 3);
  EXPECT_EQ(read.name, "conv2d_1");
  EXPECT_EQ(read.type, "Conv2D");
  EXPECT_EQ(read.output, "24,24,64");
  EXPECT_EQ(read.device, "/job:worker/replica:0/task:1/device:GPU:0");
}

TEST(EventTest, IgnoresKeysItDoesNotKnow) {
  EXPECT_TRUE(ParseEvent(R"({"event":"ready","shoe_size":43})").ok());
}

TEST(EventTest, RefusesWhatIsNoEvent) {
  for (const char* line :
       {"", "hello", "[]", "{}", R"({"event":1})", R"({"event":"nap"})", R"({"event":"step","step":-1})",
        R"({"event":"step","step":1.5})", R"({"event":"step","step":18446744073709551615})",
        R"({"event":"step","loss":"low"})", R"({"event":"step","loss":1e999})",
        R"({"event":"step","steps":0})", R"({"event":"phase","phase":7})",
        R"({"event":"ready","regroups":1})", R"({"event":"regroup","step":-1})"}) {
    EXPECT_EQ(ParseEvent(line).status().code(), StatusCode::kInvalidArgument) << line;
  }
  EXPECT_FALSE(ParseEvent(std::string(100000, '[')).ok());
  EXPECT_FALSE(ParseEvent(std::string(20000, '[')).ok());
}

TEST(EventTest, LeavesOutALossThatIsNotANumber) {
  const std::string line =
      EncodeEvent(StepEvent{.step = 1, .loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_THAT(line, ::testing::Not(::testing::HasSubstr("loss")));
}

TEST(EventTest, EscapesWhatIsNotUtf8) {
  const std::string line = EncodeEvent(ErrorEvent{.kind = "BadData", .message = "\xff\n"});
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_TRUE(ParseEvent(std::string_view(line).substr(0, line.size() - 1)).ok());
}

}  // namespace
}  // namespace lockstep::contract
