#include "common/device_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(DeviceNameTest, ReadsAllWaysThatTensorFlowWritesOne) {
  const struct {
    const char* text;
    const char* full;
  } kCases[] = {
      {"GPU:1", "/device:GPU:1"},
      {"gpu:1", "/device:GPU:1"},
      {"/gpu:1", "/device:GPU:1"},
      {"/cpu", "/device:CPU:0"},
      {"/device:GPU:3", "/device:GPU:3"},
      {"/device:tpu:0", "/device:TPU:0"},
      {"/job:worker/replica:0/task:0/device:GPU:1", "/job:worker/replica:0/task:0/device:GPU:1"},
      {"/job:ps/task:12/cpu:0", "/job:ps/task:12/device:CPU:0"},
      {"/device:CPU:0/job:worker", "/job:worker/device:CPU:0"},
  };
  for (const auto& test : kCases) {
    const auto name = ParseDeviceName(test.text);
    ASSERT_TRUE(name.ok()) << test.text << ": " << name.status().message();
    EXPECT_EQ(name->Full(), test.full) << test.text;
  }
}

TEST(DeviceNameTest, SaysWhatIsWrong) {
  const struct {
    const char* text;
    const char* why;
  } kCases[] = {
      {"", "is not one of CPU, GPU, TPU"},
      {"FPGA:0", "\"FPGA\" is not one of"},
      {"GPU:x", "\"x\" is not an index"},
      {"GPU:-1", "\"-1\" is not an index"},
      {"GPU:99999999", "is not an index"},
      {"/job:worker", "says no type of device"},
      {"/job:/gpu:0", "the job has no name"},
      {"/gpu:0/cpu:0", "it names two devices"},
      {"/task:a/gpu:0", "\"a\" is not a number of a task"},
      {"/task:1/task:2/gpu:0", "task stands twice"},
      {"/host:1/gpu:0", "\"host\" is not one of job, replica"},
      {"/", "is not one of job, replica"},
  };
  for (const auto& test : kCases) {
    const auto name = ParseDeviceName(test.text);
    ASSERT_FALSE(name.ok()) << test.text;
    EXPECT_EQ(name.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(name.status().message(), HasSubstr(test.why)) << test.text;
  }
}

}  // namespace
}  // namespace lockstep
