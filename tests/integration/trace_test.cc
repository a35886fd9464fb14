#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"
#include "tests/support/training_jobs.h"

// `lockstep run --trace` with real jobs: what is in the file, and that it is what its readers demand (that
// they read it: perfetto_test.py).
namespace lockstep::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

struct Bar {
  std::string name;
  int rank = 0;
  std::string track;
  double begin = 0, end = 0;  // microseconds
  int64_t step = 0;
  int64_t bucket = -1;
};

// Checks by the way what the format demands of each event.
std::vector<Bar> BarsOf(const json& trace) {
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M") continue;
    const int process = event.at("pid"), thread = event.at("tid");
    if (event.at("name") == "process_name") processes[process] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[{process, thread}] = event.at("args").at("name");
  }
  std::vector<Bar> bars;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X") << event;
    EXPECT_TRUE(event.at("ts").is_number() && event.at("ts") > 0) << event;
    EXPECT_TRUE(event.at("dur").is_number() && event.at("dur") >= 0) << event;
    const int process = event.at("pid"), thread = event.at("tid");
    const json& arguments = event.at("args");
    Bar bar{.name = event.at("name"),
            .rank = process - 1,
            .track = threads[{process, thread}],
            .begin = event.at("ts"),
            .end = event.at("ts").get<double>() + event.at("dur").get<double>(),
            .step = arguments.at("step"),
            .bucket = arguments.value("bucket", int64_t{-1})};
    EXPECT_THAT(processes[process], HasSubstr("rank " + std::to_string(bar.rank))) << event;
    EXPECT_EQ(event.at("cat"), bar.track) << event;
    bars.push_back(std::move(bar));
  }
  return bars;
}

// Readers draw what is on one track as a stack: bars follow or contain one another.
void ExpectNested(std::vector<Bar> bars) {
  constexpr double kRounding =
      0.01;  // of a double of microseconds since the machine's start, and a sum of two
  std::sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) {
    return std::tuple(a.rank, a.track, a.begin, -a.end) < std::tuple(b.rank, b.track, b.begin, -b.end);
  });
  std::vector<Bar> open;
  for (const Bar& bar : bars) {
    if (!open.empty() && (open.back().rank != bar.rank || open.back().track != bar.track)) open.clear();
    while (!open.empty() && open.back().end <= bar.begin + kRounding) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(bar.end, open.back().end + kRounding) << bar.name << " of step " << bar.step << " ends after "
                                                      << open.back().name << ", in which it began";
    }
    open.push_back(bar);
  }
}

json TraceOf(const JobRun& run) {
  json trace = json::parse(ReadText(run.File("trace.json")), nullptr, false);
  EXPECT_TRUE(trace.is_object()) << run.launcher().err();
  return trace.is_object() ? trace : json{{"traceEvents", json::array()}};
}

std::set<std::string> NamesOf(const std::vector<Bar>& bars, int rank, int64_t step) {
  std::set<std::string> names;
  for (const Bar& bar : bars) {
    if (bar.rank == rank && bar.step == step) names.insert(bar.name);
  }
  return names;
}

std::vector<Bar> Named(const std::vector<Bar>& bars, const std::string& name) {
  std::vector<Bar> found;
  for (const Bar& bar : bars) {
    if (bar.name == name) found.push_back(bar);
  }
  return found;
}

// One epoch of 16 steps.
json ShortSpec() { return DigitsSpec({.processes = 2, .samples = 4096, .epochs = 1}); }

TEST(TraceTest, HasTheLastStepsOfEveryRankTakenApart) {
  JobRun run(ShortSpec(), {.arguments = {"--trace", "5"}});
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("trace of the last steps in " + run.File("trace.json")));
  const json trace = TraceOf(run);
  EXPECT_EQ(trace.at("otherData").at("job"), "test");
  const std::vector<Bar> bars = BarsOf(trace);
  ExpectNested(bars);

  std::map<int64_t, std::vector<Bar>> steps;
  for (const Bar& step : Named(bars, "step")) steps[step.step].push_back(step);
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps.begin()->first, 12);
  for (const auto& [number, both] : steps) {
    ASSERT_EQ(both.size(), 2u) << number;
    // They have one clock, and neither ends a step that the other has not begun.
    EXPECT_LT(both[0].begin, both[1].end) << number;
    EXPECT_LT(both[1].begin, both[0].end) << number;
    for (const Bar& step : both) {
      EXPECT_THAT(NamesOf(bars, step.rank, number),
                  IsSupersetOf({"data wait", "forward", "loss", "backward", "wait"}));
      double before = step.begin;
      for (const char* part : {"data wait", "forward", "loss", "backward", "wait"}) {
        for (const Bar& bar : Named(bars, part)) {
          if (bar.rank != step.rank || bar.step != number || bar.begin > step.end) continue;
          EXPECT_LE(before, bar.begin + 0.01) << part << " of step " << number;
          EXPECT_LE(bar.end, step.end + 0.01) << part << " of step " << number;
          before = bar.end;
        }
      }
    }
    // Each piece of the gradients is summed, and then updated, by one of the two.
    for (const char* part : {"all-reduce", "update"}) {
      std::multiset<int64_t> buckets;
      for (const Bar& bar : Named(bars, part)) {
        if (bar.step == number) buckets.insert(bar.bucket);
      }
      EXPECT_EQ(buckets, (std::multiset<int64_t>{0, 1, 2, 3})) << part << " of step " << number;
    }
  }
  EXPECT_EQ(Named(bars, "evaluate").size(), 2u);
}

TEST(TraceTest, WhatAStrategyDoesBesideIsThereToo) {
  const struct {
    json strategy;
    std::set<std::string> of_each;  // rank
    std::set<std::string> of_some;
  } kCases[] = {
      {{{"crossDeviceOps", "Gloo"}}, {"forward", "backward", "all-reduce", "update", "data wait"}, {}},
      {{{"crossDeviceOps", "Gloo"}, {"shard", "Gradients"}},
       {"forward", "backward", "reduce-scatter", "update"},
       {"data wait"}},
      {{{"type", "CentralStorage"}}, {"forward", "backward", "all-reduce", "wait"}, {"update"}},
      {{{"type", "Pipeline"}, {"microBatches", 2}},
       {"forward", "backward", "update"},
       {"loss", "send", "wait"}},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.strategy.dump());
    json spec = ShortSpec();
    spec["strategy"] = test.strategy;
    JobRun run(spec, {.arguments = {"--trace", "1"}});
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    const std::vector<Bar> bars = BarsOf(TraceOf(run));
    ExpectNested(bars);
    std::set<std::string> all;
    for (int rank = 0; rank < 2; ++rank) {
      const std::set<std::string> names = NamesOf(bars, rank, 16);
      EXPECT_THAT(names, IsSupersetOf(test.of_each)) << "rank " << rank;
      all.insert(names.begin(), names.end());
    }
    EXPECT_THAT(all, IsSupersetOf(test.of_some));
  }
}

TEST(TraceTest, WorkersOfParameterServersHaveWhatTheyExchange) {
  json spec = ShortSpec();
  spec.erase("processesPerReplica");
  spec.erase("devices");
  spec["strategy"] = {{"type", "ParameterServer"}};
  for (const char* role : {"worker", "ps"}) {
    spec["roles"].push_back({{"name", role}, {"processesPerReplica", 1}, {"devices", {{"type", "CPU"}}}});
  }
  JobRun run(spec, {.arguments = {"--trace", "3"}});
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  const std::vector<Bar> bars = BarsOf(TraceOf(run));
  ExpectNested(bars);
  EXPECT_THAT(NamesOf(bars, 0, 16), IsSupersetOf({"pull", "forward", "backward", "push", "step"}));
  EXPECT_EQ(Named(bars, "step").size(), 3u);
}

int64_t StepOf(const JobRun& run) {
  const json status = run.Status();
  return status.is_object() && status.contains("progress") ? status["progress"].value("step", int64_t{0}) : 0;
}

TEST(TraceTest, AJobThatIsAskedToStopLeavesItsLastSteps) {
  JobRun run(DigitsSpec({.processes = 2, .epochs = 1000}), {.arguments = {"--trace", "4"}});
  ASSERT_TRUE(WaitUntil([&] { return StepOf(run) >= 8; }));
  run.launcher().Signal(SIGTERM);
  EXPECT_NE(run.Wait(), 0);
  const std::vector<Bar> steps = Named(BarsOf(TraceOf(run)), "step");
  ASSERT_EQ(steps.size(), 8u) << run.launcher().err();
  EXPECT_GE(steps[0].step, 5);
  EXPECT_EQ(steps[3].step, steps[7].step);
}

TEST(TraceTest, AfterARestartItIsOfTheLastGeneration) {
  JobRun run(DigitsSpec({.processes = 2, .epochs = 1000}), {.arguments = {"--trace", "3"}});
  ASSERT_TRUE(WaitUntil([&] { return StepOf(run) >= 8; }));
  const std::vector<pid_t> pids = run.Pids();
  ASSERT_EQ(pids.size(), 2u) << run.launcher().err();
  ::kill(pids[1], SIGKILL);
  ASSERT_EQ(run.Pids(1).size(), 2u) << run.launcher().err();
  const int64_t before = StepOf(run);
  ASSERT_TRUE(WaitUntil([&] { return StepOf(run) > before + 8; })) << run.launcher().err();
  run.launcher().Signal(SIGTERM);
  EXPECT_NE(run.Wait(), 0);
  // (What is to leave a trace keeps its memory and state as any other.)
  EXPECT_THAT(run.launcher().err(), HasSubstr("restarting what is lost"));
  const std::vector<Bar> steps = Named(BarsOf(TraceOf(run)), "step");
  ASSERT_EQ(steps.size(), 6u);
  for (const Bar& step : steps) EXPECT_GT(step.step, before);
}

TEST(TraceTest, TracesOfSeveralLaunchersHaveOneClock) {
  const TemporaryFolder folder;
  const std::string rendezvous = "127.0.0.1:" + std::to_string(FreePort());
  json spec = ShortSpec();
  spec["processesPerReplica"] = 1;
  spec["replicas"] = 2;
  const auto start = [&](int replica) {
    return std::make_unique<JobRun>(
        spec, JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous", rendezvous,
                                            "--token-file", folder.File("token"), "--trace", "5"}});
  };
  const auto first = start(0);
  ASSERT_TRUE(WaitUntil([&] { return !ReadText(folder.File("token")).empty(); })) << first->launcher().err();
  const auto second = start(1);
  ASSERT_EQ(first->Wait(), 0) << first->launcher().err();
  ASSERT_EQ(second->Wait(), 0) << second->launcher().err();
  const std::vector<Bar> theirs[] = {Named(BarsOf(TraceOf(*first)), "step"),
                                     Named(BarsOf(TraceOf(*second)), "step")};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(theirs[i].size(), 5u);
    for (const Bar& step : theirs[i]) EXPECT_EQ(step.rank, i);
  }
  // Here their clocks are one anyway, and what was found between them is off by the way to the store at most.
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(theirs[0][i].step, theirs[1][i].step);
    EXPECT_NEAR(theirs[0][i].end, theirs[1][i].end, 1e6);
  }
  EXPECT_THAT(ReadText(first->File("rank-0.log")) + ReadText(second->File("rank-1.log")),
              ::testing::Not(HasSubstr("trace:")));
}

TEST(TraceTest, WithoutBeingAskedThereIsNone) {
  JobRun run(DigitsSpec({.processes = 1, .samples = 512, .epochs = 1}));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_EQ(ReadText(run.File("trace.json")), "");
  EXPECT_THAT(run.launcher().err(), ::testing::Not(HasSubstr("trace")));
}

TEST(TraceTest, OfAProgramItIsRefused) {
  JobRun run(ShellSpec(1, "exit 0"), {.arguments = {"--trace", "4"}});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.launcher().err(), HasSubstr("--trace records what lockstep-trainer does"));
  JobRun none(ShortSpec(), {.arguments = {"--trace", "0"}});
  EXPECT_NE(none.Wait(), 0);
  EXPECT_THAT(none.launcher().err(), HasSubstr("--trace: "));
}

}  // namespace
}  // namespace lockstep::testing
