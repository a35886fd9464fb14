#include "tests/bench/collectives/kept_updates.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "trainer/backend/factory.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/journal.h"

namespace lockstep::bench {
namespace {

using trainer::collectives::LocalGroup;
using trainer::collectives::SharedSegment;
using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = 16 * 1024;
constexpr int kRounds = 100;

// Parameters, two slots and gradients, one after the other.
void Measure(LocalGroup& group, const SharedSegment& buffers, size_t parameters, UpdateTimes* times) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  trainer::strategy::Journal journal;
  journal.Create(group, trainer::strategy::CutEvenly(parameters, kPiece), 3, deadline);
  if (group.rank() == 0) {
    const auto at = [&](size_t i) {
      return buffers.View<float>(i * parameters * sizeof(float), parameters).data();
    };
    std::fill_n(at(3), parameters, 1e-3f);
    const std::array<float*, 3> kept{at(0), at(1), at(2)};
    const trainer::UpdateBuffers updated{.parameters = at(0), .gradients = at(3), .slots = {at(1), at(2)}};
    const auto backend = trainer::MakeBackend({.threads = 1});
    const auto optimizer = trainer::MakeOptimizer({.kind = trainer::OptimizerKind::kAdam}, *backend);
    const auto update = [&](uint64_t turn, bool keep) {
      const auto start = Clock::now();
      for (size_t piece = 0; piece < journal.pieces().size(); ++piece) {
        const auto [begin, end] = journal.pieces()[piece];
        if (keep) journal.Begin(piece, kept.data());
        optimizer->Update(static_cast<int64_t>(turn) + 1, updated, static_cast<int64_t>(begin),
                          static_cast<int64_t>(end), {});
        if (keep) journal.Done(piece, turn);
      }
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    *times = {.plain_seconds = update(0, false), .kept_seconds = update(0, true)};
    for (uint64_t turn = 1; turn <= kRounds; ++turn) {
      times->plain_seconds = std::min(times->plain_seconds, update(turn, false));
      times->kept_seconds = std::min(times->kept_seconds, update(turn, true));
    }
  }
  group.Barrier("measuring", deadline);
}

}  // namespace

UpdateTimes MeasureUpdates(size_t parameters) {
  testing::ForkStore store;
  const SharedSegment times = SharedSegment::Create("times", sizeof(UpdateTimes));
  testing::Processes processes(0, 2, [&](int rank) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    const auto group = LocalGroup::Join({.rank = rank, .size = 2, .store = &store, .deadline = deadline});
    const SharedSegment buffers =
        group->CreateSegment("buffers", 4 * parameters * sizeof(float), deadline, /*resident=*/false);
    Measure(*group, buffers, parameters, times.View<UpdateTimes>(0, 1).data());
  });
  for (size_t r = 0; r < 2; ++r) processes.Wait(r);
  return times.View<UpdateTimes>(0, 1)[0];
}

}  // namespace lockstep::bench
