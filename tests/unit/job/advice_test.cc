#include "launcher/job/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::job {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kOrdinal = {
    "Traceback (most recent call last):", "RuntimeError: CUDA error: invalid device ordinal",
    "CUDA kernel errors might be asynchronously reported at some other API call"};

placement::ProcessDevices Gpus(std::vector<std::string> visible) {
  return {.type = spec::DeviceType::kGpu, .visible = std::move(visible)};
}

TEST(AdviceTest, ExplainsAGpuAskedForByANumberThatIsNotSeen) {
  EXPECT_THAT(AdviceFor(kOrdinal, Gpus({"GPU-1"})), HasSubstr("devices.visibility: PerReplica"));
  EXPECT_THAT(AdviceFor(kOrdinal, Gpus({"GPU-1", "GPU-2"})), HasSubstr("2 GPUs, cuda:0 to cuda:1"));
}

TEST(AdviceTest, ExplainsThatAProcessorsProcessHasNone) {
  for (const char* line :
       {"RuntimeError: No CUDA GPUs are available", "CUDA error: invalid device ordinal"}) {
    EXPECT_THAT(AdviceFor({line}, {.type = spec::DeviceType::kCpu}), HasSubstr("devices.type: CPU"));
  }
}

TEST(AdviceTest, HasNoneForWhatItDoesNotKnow) {
  EXPECT_EQ(AdviceFor({"KeyError: 'rank'"}, Gpus({"GPU-1"})), "");
  EXPECT_EQ(AdviceFor({"RuntimeError: No CUDA GPUs are available"}, Gpus({"GPU-1"})), "");
  EXPECT_EQ(AdviceFor({}, {.type = spec::DeviceType::kCpu}), "");
}

}  // namespace
}  // namespace lockstep::job
