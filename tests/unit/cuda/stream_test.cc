#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/cuda/device.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using CudaStreamTest = CudaDeviceTest;

TEST_F(CudaStreamTest, SaysWhatItIs) {
  const auto device = Make();
  EXPECT_EQ(device->name(), "GPU:0");
  EXPECT_THAT(device->description(), AllOf(HasSubstr(device->identity().name), HasSubstr("sm_"),
                                           HasSubstr("CUDA 13"), HasSubstr("memory Growth")));
  EXPECT_THAT(device->identity().uuid,
              testing::MatchesRegex("(GPU|MIG)-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_GE(device->identity().capability, 75);
  EXPECT_GT(device->identity().memory_bytes, 0);
}

TEST_F(CudaStreamTest, ADeviceThatIsNotThereIsNamedWithThoseThatAre) {
  for (const int ordinal : {-1, devices()}) {
    try {
      Make({.ordinal = ordinal});
      FAIL();
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("GPU " + std::to_string(ordinal) + " is not there"),
                                      HasSubstr("GPU " + std::to_string(devices() - 1) + " (")));
    }
  }
}

TEST_F(CudaStreamTest, WorkRunsInTheOrderItWasAskedFor) {
  const auto device = Make();
  constexpr int kSteps = 200;
  const Buffer place(device->allocator(), sizeof(float));
  const Buffer seen(device->pinned(), kSteps * sizeof(float));
  for (int i = 0; i < kSteps; ++i) {
    device->SetFloat(place.as<float>(), static_cast<float>(i));
    device->CopyAsync(seen.as<float>() + i, place.data(), sizeof(float));
  }
  device->Synchronize();
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(seen.as<float>()[i], static_cast<float>(i));
}

TEST_F(CudaStreamTest, NothingBlocksButWhatSaysSo) {
  if (controls() == nullptr) GTEST_SKIP() << "a GPU cannot be made to stand still";
  const auto device = Make();
  const Buffer data(device->allocator(), 400);
  const Buffer sum(device->allocator(), sizeof(double));
  const Buffer pinned(device->pinned(), 400);
  device->Synchronize();
  std::fill_n(pinned.as<float>(), 100, 1.0F);
  const auto event = device->MakeEvent(false);
  {
    const Held held(controls());
    device->Zero(data.data(), data.bytes());
    device->CopyAsync(data.data(), pinned.data(), data.bytes());
    device->SetFloat(data.as<float>(), 3);
    device->SumOfSquaresAsync(data.as<float>(), 100, sum.as<double>());
    const Buffer more(device->allocator(), 1000);
    device->CopyAsync(pinned.data(), sum.data(), sizeof(double));
    event->Record(device->compute_stream());
    EXPECT_FALSE(event->Done());
  }
  device->Synchronize();
  EXPECT_TRUE(event->Done());
  EXPECT_EQ(*pinned.as<double>(), 99 + 9);
}

TEST_F(CudaStreamTest, SumsOfSquaresAreInDouble) {
  const auto device = Make();
  std::vector<float> values(100'001);
  double expected = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * 1e4F;
    expected += static_cast<double>(values[i]) * values[i];
  }
  const Buffer data(device->allocator(), values.size() * sizeof(float));
  Upload(*device, data, values);
  const double sum = device->SumOfSquares(data.as<float>(), static_cast<int64_t>(values.size()));
  EXPECT_NEAR(sum, expected, expected * 1e-12);
  const Buffer behind(device->allocator(), sizeof(double));
  device->SumOfSquaresAsync(data.as<float>(), static_cast<int64_t>(values.size()), behind.as<double>());
  double later = 0;
  device->Download(&later, behind.data(), sizeof later);
  EXPECT_EQ(later, sum);
}

TEST_F(CudaStreamTest, TwoDevicesTakeTurnsInOneThread) {
  if (devices() < 2) GTEST_SKIP() << "needs two devices, and here is one";
  const auto one = Make({.ordinal = 0});
  const auto two = Make({.ordinal = 1, .policy = MemoryPolicy::kPreallocate, .limit = 100 << 20});
  EXPECT_NE(one->identity().uuid, two->identity().uuid);
  EXPECT_EQ(two->name(), "GPU:1");
  const auto kernel_of = [](DeviceBackend& device) {
    return device.MakeDense({.inputs = 2, .units = 1, .bias = false, .max_batch = 1});
  };
  const auto first = kernel_of(*one);
  const auto second = kernel_of(*two);
  std::vector<Buffer> kept;
  const auto bind = [&](DeviceBackend& device, ProductKernel& kernel, std::vector<float> weights) {
    weights.resize(static_cast<size_t>(kernel.stored_size()));
    kept.emplace_back(device.allocator(), weights.size() * sizeof(float));
    Upload(device, kept.back(), weights);
    kernel.Bind({.kernel = kept.back().as<float>()});
    kernel.KernelChanged(0, kernel.stored_size());
  };
  bind(*one, *first, {1, 2});
  bind(*two, *second, {10, 20});
  for (int i = 0; i < 3; ++i) {
    for (const auto& [device, kernel, expected] :
         {std::tuple{one.get(), first.get(), 5.0F}, std::tuple{two.get(), second.get(), 50.0F}}) {
      const Buffer x(device->allocator(), 2 * sizeof(float));
      const Buffer y(device->allocator(), sizeof(float));
      Upload(*device, x, {1, 2});
      kernel->Forward(1, x.data(), y.data());
      EXPECT_EQ(Download(*device, y), std::vector<float>{expected});
    }
  }
}

TEST_F(CudaStreamTest, ABrokenDeviceIsDeviceLostAtTheNextCall) {
  if (controls() == nullptr) GTEST_SKIP() << "would break the GPU for this process";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto break_it = [this] {
    const auto device = Make();
    const Buffer buffer(device->allocator(), 100);
    constexpr int kLaunchFailure = 719;
    controls()->fault(kLaunchFailure);
    try {
      device->Zero(buffer.data(), buffer.bytes());
    } catch (const DeviceLost& error) {
      std::exit(std::string(error.what()).find("cudaErrorLaunchFailure") == std::string::npos ? 1 : 0);
    }
    std::exit(2);
  };
  EXPECT_EXIT(break_it(), testing::ExitedWithCode(0), "asked for by a test");
}

}  // namespace
}  // namespace lockstep::trainer
