// What communication costs: all-reduce between forked processes over shared memory and over Gloo's TCP on the
// loopback, beside the machine's memcpy in the same run; and training steps of the strategies, beside one
// process; and what it costs a pipeline's stage that an update can be done again.
//
//   collectives_bench [--strategies | --all-reduce | --updates]
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "tests/bench/collectives/kept_updates.h"
#include "tests/bench/collectives/strategy_steps.h"
#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/collectives/gloo/gloo_communicator.h"
#include "trainer/collectives/local/local_communicator.h"

namespace lockstep::bench {
namespace {

using trainer::collectives::Communicator;
using trainer::collectives::LocalGroup;
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
Clock::time_point Soon() { return Clock::now() + std::chrono::seconds(60); }

// The fastest of some calls.
template <typename Call>
double Best(size_t bytes, const Call& call) {
  const int calls = static_cast<int>(std::clamp<size_t>((64 << 20) / (bytes + 1), 20, 1000));
  double best = 1e9;
  for (int i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    call();
    if (i > 2) best = std::min(best, SecondsSince(start));
  }
  return best;
}

double MeasureAllReduce(bool gloo, int ranks, size_t bytes) {
  testing::ForkStore store;
  void* memory = ::mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* seconds = new (memory) double(0);
  {
    testing::Processes processes(0, ranks, [&](int rank) {
      std::unique_ptr<LocalGroup> group;
      std::unique_ptr<Communicator> communicator;
      if (gloo) {
        communicator = trainer::collectives::ConnectGloo(
            {.rank = rank, .size = ranks, .store = &store, .reach = "127.0.0.1", .deadline = Soon()});
      } else {
        group = LocalGroup::Join({.rank = rank, .size = ranks, .store = &store, .deadline = Soon()});
        communicator = trainer::collectives::MakeLocalCommunicator(*group, Soon());
      }
      std::vector<float> data(bytes / sizeof(float), 1e-30f);
      const double best = Best(bytes, [&] { communicator->AllReduce(std::span(data), Soon()); });
      communicator->Barrier(Soon());
      if (rank == 0) *seconds = best;
    });
    for (int r = 0; r < ranks; ++r) processes.Wait(static_cast<size_t>(r));
  }
  const double result = *seconds;
  ::munmap(memory, sizeof(double));
  return result;
}

void AllReduceTable() {
  std::printf("all-reduce, best of many calls (GB/s: bytes of the buffer by the time)\n");
  std::printf("%-14s %5s %10s %12s %8s %14s\n", "transport", "ranks", "bytes", "us", "GB/s", "memcpy GB/s");
  for (const size_t bytes : {size_t{4} << 10, size_t{64} << 10, size_t{1077} << 10, size_t{25} << 20}) {
    std::vector<char> from(bytes, 1), to(bytes, 2);
    const double copy = Best(bytes, [&] {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" ::"r"(to.data()) : "memory");
    });
    for (const bool gloo : {false, true}) {
      for (const int ranks : {2, 4}) {
        const double seconds = MeasureAllReduce(gloo, ranks, bytes);
        const auto size = static_cast<double>(bytes);
        std::printf("%-14s %5d %10zu %12.1f %8.2f %14.2f\n", gloo ? "Gloo" : "shared memory", ranks, bytes,
                    seconds * 1e6, size / seconds / 1e9, size / copy / 1e9);
      }
    }
  }
}

void StrategyTable() {
  using trainer::strategy::CrossDeviceOps;
  using trainer::strategy::Kind;
  std::printf(
      "training steps of 784-256-256-10, Adam, global batch 256, one thread a process, best of %d rounds\n",
      9);
  std::printf("%-14s %9s %12s %10s %14s %8s\n", "strategy", "processes", "images/s", "step us",
              "not hidden us", "times 1");
  double one = 0;
  struct Row {
    const char* name;
    int ranks;
    Kind kind;
    CrossDeviceOps ops;
  };
  for (const Row& row : {Row{"OneDevice", 1, Kind::kOneDevice, CrossDeviceOps::kAuto},
                         Row{"Mirrored", 2, Kind::kMirrored, CrossDeviceOps::kAuto},
                         Row{"Mirrored", 4, Kind::kMirrored, CrossDeviceOps::kAuto},
                         Row{"over Gloo", 2, Kind::kMirrored, CrossDeviceOps::kGloo},
                         Row{"over Gloo", 4, Kind::kMirrored, CrossDeviceOps::kGloo}}) {
    const StepTimes times = MeasureSteps(row.ranks, row.kind, row.ops);
    if (row.ranks == 1) one = times.images_per_second;
    std::printf("%-14s %9d %12.0f %10.1f %14.1f %8.2f\n", row.name, row.ranks, times.images_per_second,
                times.step_seconds * 1e6, times.collective_seconds * 1e6, times.images_per_second / one);
  }
}

void UpdateTable() {
  std::printf("Adam's update in pieces of 64 KiB, each kept as it was meanwhile, best of many\n");
  std::printf("%12s %10s %10s %8s\n", "parameters", "us", "kept us", "times");
  for (const size_t parameters : {size_t{270'000}, size_t{1'900'000}, size_t{8'000'000}}) {
    const UpdateTimes times = MeasureUpdates(parameters);
    std::printf("%12zu %10.1f %10.1f %8.2f\n", parameters, times.plain_seconds * 1e6,
                times.kept_seconds * 1e6, times.kept_seconds / times.plain_seconds);
  }
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  if (only.empty() || only == "--all-reduce") lockstep::bench::AllReduceTable();
  if (only.empty() || only == "--strategies") lockstep::bench::StrategyTable();
  if (only.empty() || only == "--updates") lockstep::bench::UpdateTable();
  return 0;
}
