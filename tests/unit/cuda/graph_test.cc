#include <stdexcept>

#include "tests/unit/cuda/device.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

class CudaGraphTest : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = Make({.policy = MemoryPolicy::kLimit, .limit = 200 << 20});
    data_ = Buffer(device_->allocator(), 100 * sizeof(float));
    sum_ = Buffer(device_->allocator(), sizeof(double));
    Upload(*device_, data_, std::vector<float>(100, 1.0F));
    device_->Zero(sum_.data(), sizeof(double));
  }
  double Sum() {
    double sum = 0;
    device_->Download(&sum, sum_.data(), sizeof sum);
    return sum;
  }
  void EnqueueSum() { device_->SumOfSquaresAsync(data_.as<float>(), 100, sum_.as<double>()); }

  std::unique_ptr<DeviceBackend> device_;
  Buffer data_, sum_;
};

TEST_F(CudaGraphTest, RunsWhatWasRecordedAtEachLaunchAndNotBefore) {
  const auto graph = device_->Record([&] { EnqueueSum(); });
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(Sum(), 0);
  graph->Launch();
  EXPECT_EQ(Sum(), 100);
  // What lies in the device's memory may change from launch to launch.
  for (const float value : {2.0F, 5.0F}) {
    device_->SetFloat(data_.as<float>(), value);
    graph->Launch();
    EXPECT_EQ(Sum(), 99 + value * value);
  }
}

TEST_F(CudaGraphTest, LaunchesFollowOneAnotherAndTheWorkAround) {
  const Buffer other(device_->allocator(), data_.bytes());
  const auto graph = device_->Record([&] {
    device_->CopyAsync(other.data(), data_.data(), data_.bytes());
    device_->SumOfSquaresAsync(other.as<float>(), 100, sum_.as<double>());
  });
  ASSERT_NE(graph, nullptr);
  constexpr int kLaunches = 50;
  const Buffer seen(device_->pinned(), kLaunches * sizeof(double));
  for (int i = 0; i < kLaunches; ++i) {
    device_->SetFloat(data_.as<float>(), static_cast<float>(i));
    graph->Launch();
    device_->CopyAsync(seen.as<double>() + i, sum_.data(), sizeof(double));
  }
  device_->Synchronize();
  for (int i = 0; i < kLaunches; ++i) EXPECT_EQ(seen.as<double>()[i], 99 + i * i);
}

TEST_F(CudaGraphTest, AnotherStreamJoinsAndComesBack) {
  const auto out = device_->MakeEvent(false);
  const auto back = device_->MakeEvent(false);
  const auto graph = device_->Record([&] {
    EnqueueSum();
    out->Record(device_->compute_stream());
    out->MakeWait(device_->communication_stream());
    back->Record(device_->communication_stream());
    back->MakeWait(device_->compute_stream());
  });
  ASSERT_NE(graph, nullptr);
  graph->Launch();
  EXPECT_EQ(Sum(), 100);
  // The events serve outside of it again.
  out->Record(device_->compute_stream());
  device_->Synchronize();
  EXPECT_TRUE(out->Done());
}

TEST_F(CudaGraphTest, EventsWithTimingMeasureEachLaunch) {
  const auto start = device_->MakeEvent(true);
  const auto end = device_->MakeEvent(true);
  const auto graph = device_->Record([&] {
    start->Record(device_->compute_stream());
    EnqueueSum();
    end->Record(device_->compute_stream());
  });
  ASSERT_NE(graph, nullptr);
  for (int i = 0; i < 3; ++i) {
    graph->Launch();
    device_->Synchronize();
    EXPECT_GT(end->SecondsSince(*start), 0);
  }
}

TEST_F(CudaGraphTest, WhatCannotBeRecordedGivesNoneAndEnqueuesNothing) {
  const struct {
    const char* name;
    std::function<void()> enqueue;
  } cases[] = {
      {"memory of the pool", [&] { const Buffer buffer(device_->allocator(), 1000); }},
      {"memory to share", [&] { const Buffer buffer(device_->shareable(), 1000); }},
      {"memory of the host", [&] { const Buffer buffer(device_->pinned(), 1000); }},
      {"waiting", [&] { device_->Synchronize(); }},
      {"a copy that waits",
       [&] {
         float value = 0;
         device_->Download(&value, data_.data(), sizeof value);
       }},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(device_->Record([&] {
      EnqueueSum();
      c.enqueue();
    }),
              nullptr)
        << c.name;
    EXPECT_EQ(Sum(), 0) << c.name;
    // And nothing is left of it.
    const Buffer works_again(device_->allocator(), 1000);
    const auto graph = device_->Record([&] { EnqueueSum(); });
    ASSERT_NE(graph, nullptr) << c.name;
    graph->Launch();
    EXPECT_EQ(Sum(), 100) << c.name;
    device_->Zero(sum_.data(), sizeof(double));
  }
}

TEST_F(CudaGraphTest, AnotherStreamThatDoesNotComeBackGivesNone) {
  if (controls() == nullptr) GTEST_SKIP() << "leaves the other stream of a GPU in a recording that failed";
  const auto out = device_->MakeEvent(true);
  const auto join = device_->MakeEvent(false);
  EXPECT_EQ(device_->Record([&] {
    EnqueueSum();
    join->Record(device_->compute_stream());
    join->MakeWait(device_->communication_stream());
    out->Record(device_->communication_stream());
  }),
            nullptr);
  device_->Synchronize();
  EXPECT_EQ(Sum(), 0);
}

TEST_F(CudaGraphTest, AnErrorWhileRecordingIsPassedOnAndLeavesNoRecordingBehind) {
  EXPECT_THROW(device_->Record([&] {
    EnqueueSum();
    throw BadModel("the caller's own");
  }),
               BadModel);
  EXPECT_EQ(Sum(), 0);
  EnqueueSum();
  EXPECT_EQ(Sum(), 100);
}

TEST_F(CudaGraphTest, MemoryFreedWhileRecordingIsFreedAfterwards) {
  const int64_t used = device_->memory_use().used;
  {
    Buffer pooled(device_->allocator(), 1 << 20);
    Buffer shared(device_->shareable(), 1 << 20);
    const auto graph = device_->Record([&] {
      EnqueueSum();
      pooled = Buffer();
      shared = Buffer();
    });
    ASSERT_NE(graph, nullptr);
    graph->Launch();
  }
  EXPECT_EQ(Sum(), 100);
  EXPECT_EQ(device_->memory_use().used, used);
}

TEST_F(CudaGraphTest, OutlivesTheRecordingOfAnother) {
  const auto first = device_->Record([&] { EnqueueSum(); });
  const auto second = device_->Record([&] { device_->SetFloat(data_.as<float>(), 3); });
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  second->Launch();
  first->Launch();
  EXPECT_EQ(Sum(), 99 + 9);
}

}  // namespace
}  // namespace lockstep::trainer
