#include "trainer/trace_setup.h"

#include <chrono>

#include "common/log.h"
#include "trainer/trace/part_file.h"
#include "trainer/trace/shared_clock.h"

namespace lockstep::trainer {
namespace {

// Machines come to the end of the training together.
constexpr std::chrono::seconds kPatience{10};

}  // namespace

std::unique_ptr<trace::Recorder> MakeTrace(const ProcessEnvironment& environment) {
  if (environment.trace_file.empty()) return nullptr;
  return std::make_unique<trace::Recorder>(trace::Recorder::Options{.steps = environment.trace_steps});
}

void LeaveTrace(const trace::Recorder& trace, const ProcessEnvironment& environment, contract::Store* store) {
  const strategy::World& world = environment.world;
  const int machines = store == nullptr ? 1 : world.group_size;
  const auto offset = trace::OffsetToFirstMachine(
      {.machine = world.group_rank, .machines = machines, .local_rank = world.local_rank}, store,
      std::chrono::steady_clock::now() + kPatience);
  if (!offset.ok()) {
    log::Warning("trace: its times are this machine's own, not those of rank 0's: " +
                 offset.status().message());
  }
  if (trace.Last().empty()) return;  // an evaluator's
  const Status written = WritePart(environment.trace_file,
                                   {.rank = world.rank,
                                    .role = environment.role,
                                    .role_rank = environment.role_rank,
                                    .device = environment.device,
                                    .clock_offset = offset.ok() ? *offset : std::chrono::nanoseconds(0)},
                                   trace);
  if (!written.ok()) log::Warning(written.message());
}

}  // namespace lockstep::trainer
