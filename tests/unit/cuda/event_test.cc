#include <thread>

#include "tests/unit/cuda/device.h"

namespace lockstep::trainer {
namespace {

using CudaEventTest = CudaDeviceTest;

TEST_F(CudaEventTest, NeverRecordedItIsDone) {
  const auto device = Make();
  const auto event = device->MakeEvent(false);
  EXPECT_TRUE(event->Done());
  event->MakeWait(device->compute_stream());  // for nothing
  device->Synchronize();
}

TEST_F(CudaEventTest, IsDoneWhenTheWorkBeforeItIs) {
  const auto device = Make();
  const auto event = device->MakeEvent(false);
  for (int again = 0; again < 3; ++again) {
    if (controls() != nullptr) {
      const Held held(controls());
      event->Record(device->compute_stream());
      EXPECT_FALSE(event->Done());
    } else {
      event->Record(device->compute_stream());
    }
    device->Synchronize();
    EXPECT_TRUE(event->Done());
  }
}

// The communication stream copies what the compute stream wrote, and the other way around, many times.
TEST_F(CudaEventTest, OrdersTheStreams) {
  const auto device = Make();
  const auto written = device->MakeEvent(false);
  const auto read = device->MakeEvent(false);
  const Buffer data(device->allocator(), 1 << 20);
  const Buffer seen(device->pinned(), sizeof(float) * 100);
  // (There is no work of ours for the other stream; waits make a chain through it.)
  for (int i = 0; i < 100; ++i) {
    device->Zero(data.data(), data.bytes());
    device->SetFloat(data.as<float>(), static_cast<float>(i));
    written->Record(device->compute_stream());
    written->MakeWait(device->communication_stream());
    read->Record(device->communication_stream());
    read->MakeWait(device->compute_stream());
    device->CopyAsync(seen.as<float>() + i, data.data(), sizeof(float));
  }
  device->Synchronize();
  EXPECT_TRUE(read->Done());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(seen.as<float>()[i], static_cast<float>(i));
}

TEST_F(CudaEventTest, AWaitIsForTheLatestRecordBeforeIt) {
  if (controls() == nullptr) GTEST_SKIP() << "a GPU cannot be made to stand still";
  const auto device = Make();
  const auto event = device->MakeEvent(false);
  const auto end = device->MakeEvent(false);
  event->Record(device->compute_stream());
  device->Synchronize();
  const Held held(controls());
  event->MakeWait(device->communication_stream());
  event->Record(device->compute_stream());
  end->Record(device->communication_stream());
  EXPECT_FALSE(event->Done());
  EXPECT_FALSE(end->Done());
}

TEST_F(CudaEventTest, MeasuresTheTimeBetween) {
  const auto device = Make();
  const auto start = device->MakeEvent(true);
  const auto end = device->MakeEvent(true);
  start->Record(device->compute_stream());
  if (controls() != nullptr) {
    device->Synchronize();
    const Held held(controls());
    end->Record(device->compute_stream());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // what is measured, not waited for
  } else {
    end->Record(device->compute_stream());
  }
  device->Synchronize();
  ASSERT_TRUE(end->Done());
  const double seconds = end->SecondsSince(*start);
  EXPECT_GE(seconds, controls() != nullptr ? 0.03 : 0);
  EXPECT_LT(seconds, 60);
}

}  // namespace
}  // namespace lockstep::trainer
