#include "launcher/health/peak.h"

#include <gtest/gtest.h>

namespace lockstep::health {
namespace {

double PeakOf(std::string_view precision, const placement::NvmlLibrary::Computing& computing) {
  for (const Peak& peak : PeaksOf(computing)) {
    if (peak.precision == precision) return peak.flops;
  }
  return 0;
}

// The numbers of the data sheets, in TFLOPS.
TEST(PeakTest, IsThatOfTheDataSheets) {
  const placement::NvmlLibrary::Computing t4{.cuda_cores = 2560, .max_clock = 1.59e9, .major = 7, .minor = 5};
  EXPECT_NEAR(PeakOf("Float32", t4), 8.1e12, 0.05e12);
  EXPECT_EQ(PeaksOf(t4).size(), 1u) << "its tensor cores know neither";
  const placement::NvmlLibrary::Computing a100{
      .cuda_cores = 6912, .max_clock = 1.41e9, .major = 8, .minor = 0};
  EXPECT_NEAR(PeakOf("Float32", a100), 19.5e12, 0.05e12);
  EXPECT_NEAR(PeakOf("TF32", a100), 156e12, 0.5e12);
  EXPECT_NEAR(PeakOf("BFloat16", a100), 312e12, 0.5e12);
  const placement::NvmlLibrary::Computing h100{
      .cuda_cores = 16896, .max_clock = 1.83e9, .major = 9, .minor = 0};
  EXPECT_NEAR(PeakOf("TF32", h100), 494.7e12, 0.5e12);
  EXPECT_NEAR(PeakOf("BFloat16", h100), 989.4e12, 0.5e12);
}

TEST(PeakTest, NothingIsSaidOfWhatIsNotKnown) {
  EXPECT_TRUE(PeaksOf({}).empty());
  EXPECT_EQ(PeaksOf({.cuda_cores = 16384, .max_clock = 2.5e9, .major = 8, .minor = 9}).size(), 1u);
}

}  // namespace
}  // namespace lockstep::health
