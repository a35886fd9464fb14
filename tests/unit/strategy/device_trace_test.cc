#include "trainer/strategy/device_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "tests/unit/strategy/device_job.h"

// What strategies on the GPUs of a plugin record. (On processors: tests/integration/trace_test.cc.)
namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::GpuJob;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::WhyNotSoMany;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using trace::Clock;
using trace::Span;

constexpr int kRanks = 2;
constexpr int64_t kSteps = 3;

struct Traced {
  std::vector<std::vector<Span>> spans;                                             // by rank
  std::vector<std::vector<std::pair<Clock::time_point, Clock::time_point>>> steps;  // as the host saw them
};

// Each step alone, so that the host knows when it was.
Traced Train(Job job) {
  std::deque<trace::Recorder> recorders;  // (They cannot be moved.)
  for (int r = 0; r < kRanks; ++r) recorders.emplace_back(trace::Recorder::Options{});
  job.widths = {20, 30, 20, 10};
  job.trace = [&](int rank) { return &recorders[static_cast<size_t>(rank)]; };
  Meeting meeting;
  Traced traced{.spans = {}, .steps = std::vector<decltype(Traced::steps)::value_type>(kRanks)};
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    for (int64_t step = 0; step < kSteps; ++step) {
      const Batch batch = rank.Load(step);
      const auto begin = Clock::now();
      rank.strategy().TrainStep(batch);
      traced.steps[static_cast<size_t>(r)].emplace_back(begin, Clock::now());
    }
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  for (const trace::Recorder& recorder : recorders) traced.spans.push_back(recorder.Last());
  return traced;
}

std::map<int64_t, std::set<std::string>> NamesByStep(const std::vector<Span>& spans) {
  std::map<int64_t, std::set<std::string>> names;
  for (const Span& span : spans) names[span.step].insert(span.name);
  return names;
}

void ExpectNested(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.track, a.begin, b.end) < std::tuple(b.track, b.begin, a.end);
  });
  std::vector<Span> open;
  for (const Span& span : spans) {
    if (!open.empty() && open.back().track != span.track) open.clear();
    while (!open.empty() && open.back().end <= span.begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(span.end, open.back().end) << span.name << " in " << open.back().name << " of " << span.step;
    }
    open.push_back(span);
  }
}

// On the device a step begins after the host began to enqueue it, and ends before the host sees it done.
void ExpectWithinTheHostsSteps(const Traced& traced) {
  for (size_t r = 0; r < traced.spans.size(); ++r) {
    for (const Span& span : traced.spans[r]) {
      const auto& [begin, end] = traced.steps[r][static_cast<size_t>(span.step - 1)];
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, end) << span.name << " of step " << span.step;
      // The clock that is laid over the host's is late by what the host was at its quickest.
      EXPECT_GE(span.begin + std::chrono::milliseconds(1), begin) << span.name << " of step " << span.step;
    }
  }
}

TEST(DeviceTraceTest, EachStepsPassesSumsAndUpdatesAreThere) {
  if (const std::string why = WhyNotSoMany(kRanks); !why.empty()) GTEST_SKIP() << why;
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer}) {
    const bool sharded = shard != Shard::kNone;
    SCOPED_TRACE(sharded);
    const Traced traced = Train(
        GpuJob({.local_size = kRanks, .ops = CrossDeviceOps::kHierarchicalCopy, .shard = shard}, kRanks));
    ExpectWithinTheHostsSteps(traced);
    for (const std::vector<Span>& spans : traced.spans) {
      ExpectNested(spans);
      const auto names = NamesByStep(spans);
      EXPECT_EQ(names.size(), static_cast<size_t>(kSteps));
      for (const auto& [step, of_step] : names) {
        EXPECT_THAT(of_step, IsSupersetOf({"forward", "backward", "update", "wait"})) << step;
        EXPECT_THAT(of_step, IsSupersetOf(sharded ? std::set<std::string>{"reduce-scatter", "all-gather"}
                                                  : std::set<std::string>{"all-reduce"}));
      }
      for (const Span& span : spans) {
        if (span.name == std::string("all-reduce")) {
          EXPECT_EQ(span.track, trace::Track::kCommunication);
          EXPECT_GE(span.bucket, 0);
          EXPECT_GT(span.bytes, 0);
        }
      }
    }
  }
}

TEST(DeviceTraceTest, APipelinesMicroBatchesAreThere) {
  if (const std::string why = WhyNotSoMany(kRanks); !why.empty()) GTEST_SKIP() << why;
  const PipelineOptions plan{.stages = {{0, 0}, {1, 2}}, .micro_batches = 2};
  const Traced traced =
      Train(GpuJob({.local_size = kRanks, .kind = Kind::kPipeline, .pipeline = plan}, kRanks));
  for (const std::vector<Span>& spans : traced.spans) {
    ExpectNested(spans);
    for (const auto& [step, names] : NamesByStep(spans)) {
      EXPECT_THAT(names, IsSupersetOf({"forward", "backward", "update", "wait"})) << step;
    }
    EXPECT_EQ(std::count_if(spans.begin(), spans.end(),
                            [](const Span& span) { return span.name == std::string("forward"); }),
              2 * kSteps);
  }
}

}  // namespace
}  // namespace lockstep::trainer::strategy
