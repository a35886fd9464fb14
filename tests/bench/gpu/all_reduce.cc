#include "tests/bench/gpu/all_reduce.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/environment.h"
#include "common/contract/store_client.h"
#include "trainer/collectives/device_communicator.h"
#include "trainer/devices.h"
#include "trainer/error.h"

namespace lockstep::bench {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;
using collectives::DeviceOps;

constexpr std::chrono::seconds kTimeout{60};
constexpr size_t kLargest = size_t{256} << 20;
constexpr int kRounds = 5;

int Number(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr)
    throw Error(contract::kExitUsage, "BadEnvironment", std::string(name) + " is not set");
  return std::atoi(value);
}

DeviceOps OpsOf(const std::string& name) {
  for (const DeviceOps ops :
       {DeviceOps::kNccl, DeviceOps::kHierarchicalCopy, DeviceOps::kReductionToOneDevice}) {
    if (name == DeviceOpsName(ops)) return ops;
  }
  throw Error(contract::kExitUsage, "BadArguments", "\"" + name + "\" is no way to sum over GPUs");
}

}  // namespace

void MeasureAllReduce(const char* ops) {
  const int rank = Number(contract::kRank), size = Number(contract::kWorldSize);
  auto store = contract::StoreFromEnvironment(Clock::now() + kTimeout);
  if (!store.ok()) throw RendezvousFailed(store.status().message());
  Devices devices({});
  auto& device = dynamic_cast<DeviceBackend&>(devices.At("GPU:0"));
  const auto* communicators = devices.communicators();
  if (communicators == nullptr) throw Unsupported("the CUDA library has no communicators");
  const auto communicator = communicators->connect({.ops = OpsOf(ops),
                                                    .rank = rank,
                                                    .size = size,
                                                    .local_rank = rank,
                                                    .local_size = size,
                                                    .shared_devices = true,
                                                    .store = store->get(),
                                                    .key = "bench",
                                                    .deadline = Clock::now() + kTimeout,
                                                    .timeout = kTimeout},
                                                   device);
  if (rank == 0) std::printf("over %s\n", communicator->description().c_str());
  const Buffer data(device.shareable(), kLargest);
  device.Zero(data.data(), data.bytes());
  device.Synchronize();
  communicator->Register(data.data(), data.bytes(), Clock::now() + kTimeout);
  for (size_t bytes = size_t{1} << 20; bytes <= kLargest; bytes *= 4) {
    double best = 1e30;
    const int count = static_cast<int>(std::clamp<size_t>((size_t{512} << 20) / bytes, 4, 64));
    for (int round = 0; round <= kRounds; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < count; ++i) {
        communicator->AllReduce(data.as<float>(), bytes / sizeof(float), device.compute_stream());
      }
      device.Synchronize();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / count;
      if (round > 0) best = std::min(best, seconds);
    }
    if (rank == 0) {
      std::printf("allreduce_bytes %zu seconds %.6g memory_bytes_per_second %.4g\n", bytes, best,
                  2.0 * size * static_cast<double>(bytes) / best);
    }
  }
  communicator->Finish(Clock::now() + kTimeout);
}

}  // namespace lockstep::bench
