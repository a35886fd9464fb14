#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "tests/unit/cuda/device.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class CudaMemoryTest : public CudaDeviceTest {
 protected:
  // The message of the error that this allocation ends in; "" if it does not.
  static std::string Refusal(Allocator& allocator, int64_t bytes) {
    try {
      const Buffer buffer(allocator, static_cast<size_t>(bytes));
      return "";
    } catch (const OutOfMemory& error) {
      return error.what();
    }
  }
};

TEST_F(CudaMemoryTest, GrowthTakesWhatIsAskedForAndKeepsIt) {
  const auto device = Make({.policy = MemoryPolicy::kGrowth});
  const DeviceMemoryUse before = device->memory_use();
  EXPECT_EQ(before.limit, 0);
  EXPECT_GT(before.context, 0);
  {
    const Buffer buffer(device->allocator(), 100 * kMiB);
    EXPECT_EQ(device->memory_use().used, before.used + 100 * kMiB);
    EXPECT_GE(device->memory_use().held, before.held + 60 * kMiB);
  }
  device->Synchronize();
  const DeviceMemoryUse after = device->memory_use();
  EXPECT_EQ(after.used, before.used);
  EXPECT_EQ(after.peak, before.used + 100 * kMiB);
  EXPECT_GE(after.held, 100 * kMiB);
}

TEST_F(CudaMemoryTest, LimitRefusesWhatGoesBeyondAndGoesOn) {
  const auto device = Make({.policy = MemoryPolicy::kLimit, .limit = 128 * kMiB});
  const int64_t left = 128 * kMiB - device->memory_use().used;
  EXPECT_THAT(Refusal(device->allocator(), left + 512),
              AllOf(HasSubstr("GPU 0"), HasSubstr(std::to_string(left + 512) + " bytes were asked for"),
                    HasSubstr(std::to_string(128 * kMiB - left) + " are in use"),
                    HasSubstr(std::to_string(128 * kMiB) + " are allowed (policy Limit)")));
  for (int again = 0; again < 3; ++again) {
    const Buffer all(device->allocator(), static_cast<size_t>(left));
    EXPECT_EQ(device->memory_use().used, 128 * kMiB);
    EXPECT_NE(Refusal(device->allocator(), 1), "");
  }
  EXPECT_LE(device->memory_use().held, 128 * kMiB + 32 * kMiB);
}

TEST_F(CudaMemoryTest, SharedMemoryCountsToo) {
  const auto device = Make({.policy = MemoryPolicy::kLimit, .limit = 128 * kMiB});
  const Buffer shared(device->shareable(), 64 * kMiB);
  EXPECT_THAT(Refusal(device->allocator(), 64 * kMiB), HasSubstr("out of memory"));
  EXPECT_THAT(Refusal(device->shareable(), 64 * kMiB), HasSubstr("out of memory"));
  EXPECT_GE(device->memory_use().held, 64 * kMiB);
}

TEST_F(CudaMemoryTest, FractionIsOfTheDevicesMemory) {
  const auto device = Make({.policy = MemoryPolicy::kFraction, .fraction = 0.25});
  const int64_t quarter = device->identity().memory_bytes / 4;
  EXPECT_NEAR(static_cast<double>(device->memory_use().limit), static_cast<double>(quarter), 1);
  EXPECT_THAT(Refusal(device->allocator(), quarter + kMiB), HasSubstr("(policy Fraction)"));
}

TEST_F(CudaMemoryTest, PreallocateTakesAllAtOnceAndHandsOutParts) {
  const auto device = Make({.policy = MemoryPolicy::kPreallocate, .limit = 256 * kMiB});
  EXPECT_EQ(device->memory_use().held, 256 * kMiB);
  const int64_t left = 256 * kMiB - device->memory_use().used;
  {
    const Buffer one(device->allocator(), static_cast<size_t>(left / 4));
    const Buffer two(device->shareable(), static_cast<size_t>(left / 4));
    EXPECT_EQ(device->memory_use().held, 256 * kMiB);
    EXPECT_THAT(Refusal(device->allocator(), left * 3 / 4), HasSubstr("(policy Preallocate)"));
  }
  EXPECT_EQ(Refusal(device->allocator(), left), "");
}

TEST_F(CudaMemoryTest, PreallocateSaysWhenOnlyPiecesAreLeft) {
  const auto device = Make({.policy = MemoryPolicy::kPreallocate, .limit = 256 * kMiB});
  std::vector<Buffer> pieces;
  while (256 * kMiB - device->memory_use().used >= 16 * kMiB) {
    pieces.emplace_back(device->allocator(), 16 * kMiB);
  }
  for (size_t i = 0; i < pieces.size(); i += 2) pieces[i] = Buffer();
  EXPECT_THAT(Refusal(device->allocator(), 40 * kMiB), HasSubstr("the largest free piece has "));
}

TEST_F(CudaMemoryTest, MoreThanTheDeviceHasCannotBePreallocated) {
  const auto much = 2 * Make()->identity().memory_bytes;
  try {
    Make({.policy = MemoryPolicy::kPreallocate, .limit = much});
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(std::to_string(much) + " bytes"), HasSubstr("the device has ")));
  }
}

TEST_F(CudaMemoryTest, GrowthEndsWhereTheDeviceDoes) {
  const auto device = Make();
  EXPECT_THAT(Refusal(device->allocator(), 2 * device->identity().memory_bytes),
              AllOf(HasSubstr("no limit is set (policy Growth)"), HasSubstr("bytes free of")));
  EXPECT_EQ(Refusal(device->allocator(), kMiB), "");
}

TEST_F(CudaMemoryTest, MemoryOfAllKindsKeepsItsContents) {
  for (const MemoryPolicy policy : {MemoryPolicy::kGrowth, MemoryPolicy::kPreallocate}) {
    const auto device = Make({.policy = policy, .limit = 200 * kMiB});
    std::vector<float> values(300'000);
    std::mt19937 random(1);
    for (float& value : values) value = static_cast<float>(random());
    const size_t bytes = values.size() * sizeof(float);
    const Buffer pooled(device->allocator(), bytes);
    const Buffer shared(device->shareable(), bytes);
    const Buffer pinned(device->pinned(), bytes);
    Upload(*device, pooled, values);
    device->CopyAsync(shared.data(), pooled.data(), bytes);
    device->CopyAsync(pinned.data(), shared.data(), bytes);
    device->Zero(pooled.data(), bytes);
    device->Synchronize();
    EXPECT_EQ(std::memcmp(pinned.data(), values.data(), bytes), 0);
    EXPECT_EQ(Download(*device, shared), values);
    EXPECT_EQ(Download(*device, pooled), std::vector<float>(values.size(), 0.0F));
  }
}

TEST_F(CudaMemoryTest, NothingIsTheSameAsNull) {
  const auto device = Make();
  EXPECT_EQ(device->allocator().Allocate(0), nullptr);
  EXPECT_EQ(device->pinned().Allocate(0), nullptr);
  device->allocator().Free(nullptr, 0);
  device->Zero(nullptr, 0);
  device->CopyAsync(nullptr, nullptr, 0);
  device->Synchronize();
}

TEST_F(CudaMemoryTest, BuffersAreAligned) {
  for (const MemoryPolicy policy : {MemoryPolicy::kGrowth, MemoryPolicy::kPreallocate}) {
    const auto device = Make({.policy = policy, .limit = 100 * kMiB});
    std::vector<Buffer> buffers;
    for (const size_t bytes : {1, 100, 513, 4097}) {
      buffers.emplace_back(device->allocator(), bytes);
      buffers.emplace_back(device->shareable(), bytes);
    }
    for (const Buffer& buffer : buffers) EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  }
}

// Work that was enqueued before still has the memory; whoever gets it next comes after.
TEST_F(CudaMemoryTest, FreedMemoryServesTheWorkThatWasEnqueued) {
  for (const MemoryPolicy policy : {MemoryPolicy::kGrowth, MemoryPolicy::kPreallocate}) {
    const auto device = Make({.policy = policy, .limit = 200 * kMiB});
    const std::vector<float> ones(1 << 20, 1.0F);
    const Buffer result(device->pinned(), 100 * sizeof(double));
    const Buffer sums(device->allocator(), 100 * sizeof(double));
    const Buffer source(device->allocator(), ones.size() * sizeof(float));
    Upload(*device, source, ones);
    for (int i = 0; i < 100; ++i) {
      const Buffer copy(device->allocator(), source.bytes());
      device->CopyAsync(copy.data(), source.data(), source.bytes());
      device->SumOfSquaresAsync(copy.as<float>(), i, sums.as<double>() + i);
    }
    device->CopyAsync(result.data(), sums.data(), sums.bytes());
    device->Synchronize();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(result.as<double>()[i], i);
  }
}

TEST_F(CudaMemoryTest, AThousandStepsTakeNoMore) {
  for (const MemoryPolicy policy :
       {MemoryPolicy::kGrowth, MemoryPolicy::kLimit, MemoryPolicy::kPreallocate}) {
    const auto device = Make({.policy = policy, .limit = 200 * kMiB});
    int64_t held = 0;
    int64_t used = 0;
    for (int step = 0; step < 1000; ++step) {
      const Buffer one(device->allocator(), static_cast<size_t>(1000 * (step % 7 + 1)));
      const Buffer two(device->allocator(), static_cast<size_t>(100'000 * (step % 5 + 1)));
      device->Zero(two.data(), two.bytes());
      if (step != 99) continue;
      held = device->memory_use().held;
      used = device->memory_use().used - static_cast<int64_t>(one.bytes() + two.bytes());
    }
    device->Synchronize();
    EXPECT_EQ(device->memory_use().held, held);
    EXPECT_LE(device->memory_use().used, used);
  }
}

TEST_F(CudaMemoryTest, ARefusalOfTheDeviceIsTriedOnceMoreThenTyped) {
  if (controls() == nullptr) GTEST_SKIP() << "a GPU refuses only what it does not have";
  const auto device = Make();
  for (Allocator* allocator : {&device->allocator(), &device->shareable()}) {
    controls()->refuse_allocations(1);
    EXPECT_EQ(Refusal(*allocator, kMiB), "");
    controls()->refuse_allocations(2);
    EXPECT_THAT(Refusal(*allocator, kMiB), HasSubstr("out of memory"));
    EXPECT_EQ(Refusal(*allocator, kMiB), "");
  }
}

TEST_F(CudaMemoryTest, ABackendLeavesNothingBehind) {
  if (controls() == nullptr) GTEST_SKIP() << "other processes use a GPU's memory too";
  const int64_t before = controls()->allocated_bytes();
  for (const MemoryPolicy policy : {MemoryPolicy::kGrowth, MemoryPolicy::kPreallocate}) {
    const auto device = Make({.policy = policy, .limit = 100 * kMiB});
    const Buffer pooled(device->allocator(), 1000);
    const Buffer shared(device->shareable(), 1000);
    EXPECT_GT(controls()->allocated_bytes(), before);
    device->Synchronize();
  }
  // What a stream frees, it frees when it comes to it.
  for (int i = 0; i < 1000 && controls()->allocated_bytes() != before; ++i) Make()->Synchronize();
  EXPECT_EQ(controls()->allocated_bytes(), before);
}

}  // namespace
}  // namespace lockstep::trainer
