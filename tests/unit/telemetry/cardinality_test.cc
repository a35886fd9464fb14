#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/operator_metrics.h"
#include "tests/unit/telemetry/exposition.h"
#include "tests/unit/telemetry/fake_time.h"

// How many series there are at most: the numbers are those of docs/monitoring.md.
namespace lockstep::telemetry {
namespace {

size_t SeriesIn(const std::string& text) {
  size_t count = 0;
  for (const Family& family : ParseExposition(text).families) count += family.samples.size();
  return count;
}

// A launcher whose ranks have reported everything that there is, `rounds` times.
size_t SeriesOfLauncher(int ranks, int gpus, int rounds) {
  JobMetrics metrics({.name = "j", .namespace_name = "n", .strategy = "Mirrored", .framework = "Lockstep"});
  JobState state({.name = "j", .strategy = "Mirrored", .world_size = ranks}, metrics, At(0));
  double now = 1;
  for (int round = 0; round < rounds; ++round) {
    state.GenerationStarted(round, At(now));
    for (int rank = 0; rank < ranks; ++rank) {
      RankIdentity identity{.rank = rank, .process = rank};
      identity.device.memory_limit = 1;
      state.RankStarted(identity, 100 + rank, At(now));
    }
    for (int64_t step = 1; step <= 3; ++step) {
      now += 1;
      for (int rank = 0; rank < ranks; ++rank) {
        state.ApplyEvent(rank,
                         contract::StepEvent{.step = step,
                                             .samples = 1,
                                             .loss = 1.0 / static_cast<double>(step),
                                             .loss_average = 1,
                                             .seconds = 1e-5 * (1 + rank) * static_cast<double>(step),
                                             .collective_seconds = 1e-6,
                                             .flops = 1},
                         At(now));
        for (const char* kind : {"used", "held", "peak", "limit", "context", "reserved"}) {
          state.ApplyEvent(rank, contract::MemoryEvent{.bytes = step, .kind = kind}, At(now));
        }
        state.ApplyEvent(rank, contract::MemoryEvent{.bytes = 1, .kind = std::to_string(round)}, At(now));
        state.ApplyEvent(rank, contract::PhaseEvent{.phase = std::to_string(round)}, At(now));
      }
    }
    for (const bool ok : {true, false}) {
      state.ApplyEvent(0, contract::CheckpointEvent{.step = round, .path = std::to_string(round), .ok = ok},
                       At(now));
    }
    state.ApplyEvent(0, contract::EvaluationEvent{.split = std::to_string(round), .accuracy = 0.5}, At(now));
    for (int gpu = 0; gpu < gpus; ++gpu) {
      state.DeviceRead({.index = gpu,
                        .peak_flops = {{"Float32", 1}, {"TF32", 1}, {"BFloat16", 1}},
                        .memory_used = 1,
                        .utilization = 1,
                        .power_watts = 1,
                        .temperature = 1,
                        .ecc_errors = round,
                        .throttled = {"PowerCap"},
                        .xid_errors = round,
                        .last_xid = round});
    }
    state.Restarting(RestartReason::kSignal, {.message = std::to_string(round)}, At(now));
  }
  // Delays are those of a generation that runs.
  state.GenerationStarted(rounds, At(now));
  for (int64_t step = 1; step <= 2; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      state.ApplyEvent(rank, contract::StepEvent{.step = step, .seconds = 0.001 * rank}, At(now + step));
    }
  }
  return SeriesIn(metrics.Render(MetricsFormat::kPrometheusText, state.Figures(At(now + 10))));
}

TEST(CardinalityTest, ALaunchersSeriesFollowFromItsRanksAndGpusAlone) {
  const size_t one = SeriesOfLauncher(1, 0, 2);
  const size_t two = SeriesOfLauncher(2, 0, 2);
  const size_t three = SeriesOfLauncher(3, 0, 2);
  const size_t gpu = SeriesOfLauncher(3, 1, 2) - three;
  EXPECT_EQ(three - two, 52u) << "of a rank";
  EXPECT_EQ(gpu, 14u) << "of a GPU";
  EXPECT_EQ(two - one, 53u) << "a rank alone has no delay";
  EXPECT_EQ(SeriesOfLauncher(64, 0, 2), two + 62 * (three - two));
  EXPECT_EQ(SeriesOfLauncher(64, 0, 2), 3394u);
  EXPECT_EQ(SeriesOfLauncher(64, 8, 2), SeriesOfLauncher(64, 8, 50)) << "whatever happens";
}

TEST(CardinalityTest, AnOperatorsSeriesDoNotGrowWithItsJobs) {
  const auto series = [](int jobs) {
    OperatorMetrics metrics;
    std::map<std::string, int> phases = {{"Pending", 0},    {"Scheduled", 0}, {"Running", 0},
                                         {"Restarting", 0}, {"Suspended", 0}, {"Succeeded", 0},
                                         {"Failed", 0}};
    for (int job = 0; job < jobs; ++job) {
      for (const char* result : {"success", "requeue", "requeue_after", "error"}) {
        metrics.Queued();
        metrics.Taken(0.001 * job);
        metrics.Reconciled(result, 0.001 * job);
      }
      metrics.Retried();
      metrics.QueueDepth(static_cast<size_t>(job));
      metrics.Launched(job);
      metrics.Leads(true);
      for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
        for (const int code : {0, 200, 201, 404, 409}) metrics.Request(method, "10.0.0.1:443", code);
      }
      phases["Running"] += 1;
    }
    return SeriesIn(metrics.Render(MetricsFormat::kPrometheusText, phases));
  };
  EXPECT_EQ(series(1000), series(1));
  EXPECT_EQ(series(1000), 112u);
}

}  // namespace
}  // namespace lockstep::telemetry
