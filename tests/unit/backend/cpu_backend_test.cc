#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

TEST(CpuBackendTest, DescribesItself) {
  const auto backend = MakeBackend({.threads = 1});
  EXPECT_EQ(backend->name(), "CPU");
  EXPECT_THAT(backend->description(),
              testing::AllOf(testing::HasSubstr("oneDNN"), testing::HasSubstr("1 thread")));
}

TEST(MakeBackendTest, UnknownDeviceIsRefusedByName) {
  try {
    MakeBackend({.device = "GPU"});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("GPU"), testing::HasSubstr("CPU")));
  }
}

}  // namespace
}  // namespace lockstep::trainer
