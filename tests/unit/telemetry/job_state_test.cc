#include "launcher/telemetry/job_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/telemetry/exposition.h"
#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

using testing::HasSubstr;

class JobStateTest : public testing::Test {
 protected:
  void Launch(int processes, int generation = 0, double at = 0) {
    state_.GenerationStarted(generation, At(at));
    for (int rank = 0; rank < processes; ++rank) {
      state_.RankStarted({.rank = rank, .role = "worker", .replica = 0, .process = rank}, 1000 + rank,
                         At(at));
    }
  }
  void Step(int rank, int64_t step, double at, double seconds = 0.1) {
    state_.ApplyEvent(rank,
                      contract::StepEvent{.step = step,
                                          .total_steps = 200,
                                          .epoch = (step - 1) / 100,
                                          .samples = 10,
                                          .loss = 1.0 / static_cast<double>(step),
                                          .seconds = seconds},
                      At(at));
  }
  void Steps(int processes, int64_t first, int64_t last, double begin) {
    for (int64_t step = first; step <= last; ++step) {
      for (int rank = 0; rank < processes; ++rank) {
        Step(rank, step, begin + 0.1 * static_cast<double>(step - first + 1));
      }
    }
  }
  double Metric(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    return ParseExposition(metrics_.Render(MetricsFormat::kPrometheusText, std::nullopt)).Value(name, labels);
  }

  JobMetrics metrics_{
      {.name = "mnist", .namespace_name = "default", .strategy = "Mirrored", .framework = "Lockstep"}};
  JobState state_{{.name = "mnist", .world_size = 2}, metrics_, At(0)};
};

TEST_F(JobStateTest, GoesFromPendingToSucceeded) {
  EXPECT_EQ(state_.Snapshot(At(0)).phase, JobPhase::kPending);
  Launch(2);
  EXPECT_EQ(state_.Snapshot(At(1)).phase, JobPhase::kRunning);
  EXPECT_FALSE(state_.Snapshot(At(1)).progress);
  Steps(2, 1, 200, 1);
  for (int rank = 0; rank < 2; ++rank) state_.RankExited(rank, 0, At(21.5));
  state_.Finished(true, std::nullopt, At(22));
  const JobSnapshot done = state_.Snapshot(At(100));
  EXPECT_EQ(done.phase, JobPhase::kSucceeded);
  EXPECT_EQ(done.progress->percentage, 100);
  EXPECT_EQ(done.progress->remaining_seconds, 0);
  EXPECT_NEAR(done.elapsed_seconds, 22, 1e-9);
  EXPECT_EQ(*done.completion_time - done.start_time, std::chrono::seconds(22));
  EXPECT_EQ(done.ranks[1].exit_code, 0);
  EXPECT_EQ(done.ranks[1].state, RankState::kExited);
  EXPECT_FALSE(done.last_failure);
}

TEST_F(JobStateTest, StepsAreTheJobsAndNotEachRanks) {
  Launch(2);
  Steps(2, 1, 50, 1);
  const JobSnapshot snapshot = state_.Snapshot(At(6));
  EXPECT_EQ(snapshot.progress->step, 50);
  EXPECT_EQ(snapshot.progress->percentage, 25);
  EXPECT_NEAR(*snapshot.progress->samples_per_second, 100, 1);
  EXPECT_NEAR(*snapshot.progress->remaining_seconds, 15, 0.2);
  EXPECT_EQ(snapshot.progress->epoch, 0);
  EXPECT_DOUBLE_EQ(*snapshot.progress->loss, 1.0 / 50);
  EXPECT_EQ(Metric("lockstep_steps_total"), 50);
  EXPECT_EQ(Metric("lockstep_samples_total"), 500);
}

TEST_F(JobStateTest, AFasterRankOneDoesNotCountTheFirstStepTwice) {
  Launch(2);
  Step(1, 1, 1);
  Step(0, 1, 1.01);
  Step(1, 2, 1.1);
  Step(0, 2, 1.11);
  EXPECT_EQ(Metric("lockstep_steps_total"), 2);
  EXPECT_NEAR(*state_.Snapshot(At(2)).mean_samples_per_second, 20 / 0.21, 1e-6);
}

TEST_F(JobStateTest, ARestartIsCountedWithItsReasonAndItsLostWork) {
  Launch(2);
  Steps(2, 1, 50, 0);  // until 5 s
  Failure failure;
  failure.rank = 1;
  failure.exit_code = 137;
  failure.reason = "OOMKilled";
  failure.message = "rank 1 ran out of memory";
  state_.RankExited(1, 137, At(5.5));
  state_.Restarting(RestartReason::kOutOfMemory, failure, At(5.5));
  const JobSnapshot down = state_.Snapshot(At(6));
  EXPECT_EQ(down.phase, JobPhase::kRestarting);
  EXPECT_EQ(down.restarts, 1);
  EXPECT_FALSE(down.ready);
  EXPECT_THAT(down.ready_reason, HasSubstr("Restarting"));
  EXPECT_EQ(down.last_failure->exit_code, 137);
  EXPECT_EQ(Metric("lockstep_restarts_total", {{"reason", "OOMKilled"}}), 1);

  Launch(2, 1, 6);
  EXPECT_FALSE(state_.Snapshot(At(6)).progress->samples_per_second);
  state_.ApplyEvent(0, contract::ResumedEvent{.step = 40}, At(6.5));
  EXPECT_EQ(state_.Snapshot(At(6.5)).progress->step, 40);
  Steps(2, 41, 50, 7);
  const JobSnapshot again = state_.Snapshot(At(8));
  EXPECT_EQ(again.generation, 1);
  EXPECT_EQ(again.phase, JobPhase::kRunning);
  EXPECT_TRUE(again.ready);
  EXPECT_EQ(Metric("lockstep_steps_total"), 60);  // the repeated ones too: counters only go up
  EXPECT_NEAR(Metric("lockstep_lost_work_seconds_total", {{"reason", "OOMKilled"}}), 3,
              1e-6);  // step 40 at 4, again at 7
  EXPECT_NEAR(*again.goodput, 5.0 / 8, 1e-6);
}

TEST_F(JobStateTest, RanksAreShownAsTheyAre) {
  Launch(2);
  state_.ApplyEvent(1, contract::PhaseEvent{.phase = "Initializing"}, At(0.5));
  state_.ApplyEvent(1, contract::PhaseEvent{.phase = "<script>"}, At(0.6));
  state_.ApplyEvent(1, contract::MemoryEvent{.bytes = 77, .kind = "used"}, At(0.7));
  state_.ApplyEvent(1, contract::MemoryEvent{.bytes = 99, .kind = "limit"}, At(0.7));
  Step(0, 3, 1, 0.25);
  const JobSnapshot snapshot = state_.Snapshot(At(1));
  ASSERT_EQ(snapshot.ranks.size(), 2u);
  EXPECT_EQ(snapshot.ranks[0].step, 3);
  EXPECT_EQ(snapshot.ranks[0].step_seconds, 0.25);
  EXPECT_EQ(snapshot.ranks[0].phase, RankPhase::kTraining);
  EXPECT_EQ(snapshot.ranks[1].phase, RankPhase::kInitializing);
  EXPECT_EQ(snapshot.ranks[1].memory_bytes, 77);
  EXPECT_EQ(snapshot.ranks[1].pid, 1001);
}

TEST_F(JobStateTest, ForgetsTheRanksOfALargerWorld) {
  Launch(4);
  state_.Restarting(RestartReason::kDeviceFailed, {}, At(1));
  state_.WorldChanged(3, 0, 3);
  Launch(3, 1, 2);
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  EXPECT_EQ(snapshot.description.world_size, 3);
  ASSERT_EQ(snapshot.ranks.size(), 3u);
  EXPECT_EQ(snapshot.ranks[2].identity.rank, 2);
  EXPECT_EQ(Metric("lockstep_restarts_total", {{"reason", "DeviceFailed"}}), 1);
}

TEST_F(JobStateTest, ShowsTheNewestOfEachGpu) {
  state_.DeviceRead({.index = 1, .uuid = "GPU-b"});
  state_.DeviceRead({.index = 0, .uuid = "GPU-a"});
  state_.DeviceRead({.index = 1, .uuid = "GPU-b", .trouble = "Xid 79"});
  const JobSnapshot snapshot = state_.Snapshot(At(1));
  ASSERT_EQ(snapshot.devices.size(), 2u);
  EXPECT_EQ(snapshot.devices[0].uuid, "GPU-a");
  EXPECT_EQ(snapshot.devices[1].trouble, "Xid 79");
}

TEST_F(JobStateTest, EvaluationsGiveTheAccuracy) {
  Launch(1);
  Step(0, 1, 1);
  state_.ApplyEvent(0, contract::EvaluationEvent{.split = "validation", .accuracy = 0.9}, At(2));
  state_.ApplyEvent(0, contract::EvaluationEvent{.split = "validation"}, At(3));  // not measured
  EXPECT_EQ(state_.Snapshot(At(3)).progress->accuracy, 0.9);
  EXPECT_EQ(state_.Snapshot(At(3)).progress->accuracy_split, "validation");
}

TEST_F(JobStateTest, ReadyMeansAStepInThisGeneration) {
  Launch(2);
  EXPECT_FALSE(state_.Snapshot(At(100)).ready);
  Step(0, 1, 101);
  EXPECT_TRUE(state_.Snapshot(At(101)).ready);
  state_.Restarting(RestartReason::kHang, {}, At(102));
  Launch(2, 1, 103);
  EXPECT_FALSE(state_.Snapshot(At(103)).ready);
  EXPECT_THAT(state_.Snapshot(At(103)).ready_reason, HasSubstr("generation 1"));
}

TEST_F(JobStateTest, AProgramIsReadyOnceAllItsProcessesHaveRunAWhile) {
  JobState program({.name = "p", .reports_steps = false}, metrics_, At(0));
  program.GenerationStarted(0, At(0));
  program.RankStarted({.rank = 0}, 1, At(0));
  program.RankStarted({.rank = 1}, 2, At(1));
  EXPECT_FALSE(program.Snapshot(At(5.9)).ready);
  EXPECT_TRUE(program.Snapshot(At(6)).ready);
  program.RankExited(1, 0, At(7));
  EXPECT_TRUE(program.Snapshot(At(7)).ready);
  program.RankExited(0, 1, At(8));
  EXPECT_FALSE(program.Snapshot(At(8)).ready);
}

TEST_F(JobStateTest, WhatTheHangRuleNeedsIsOfLiveRanksOnly) {
  Launch(3);
  Step(0, 5, 1);
  state_.ApplyEvent(1, contract::ReadyEvent{}, At(2));
  state_.ApplyEvent(1, contract::ReadyEvent{}, At(9));  // again: no progress
  state_.RankExited(2, 0, At(3));
  const auto ranks = state_.rank_progress();
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_TRUE(ranks[0].stepped);
  EXPECT_EQ(ranks[0].step, 5);
  EXPECT_EQ(ranks[0].last_progress, At(1));
  EXPECT_FALSE(ranks[1].stepped);
  EXPECT_EQ(ranks[1].phase, RankPhase::kTraining);
  EXPECT_EQ(ranks[1].last_progress, At(2));
  EXPECT_DOUBLE_EQ(state_.median_step_seconds(), 0.1);
}

TEST_F(JobStateTest, UnknownRanksAndMalformedLinesDoNoHarm) {
  Launch(1);
  Step(5, 1, 1);
  state_.RankExited(5, 1, At(1));
  state_.MalformedEvent(0);
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  EXPECT_FALSE(snapshot.progress);
  EXPECT_EQ(snapshot.malformed_events, 1);
  EXPECT_EQ(Metric("lockstep_malformed_events_total"), 1);
}

TEST_F(JobStateTest, TheLoopsSilenceIsSinceTheLastTick) {
  EXPECT_EQ(state_.LoopSilence(At(3)), std::chrono::seconds(3));
  state_.Tick(At(4));
  EXPECT_EQ(state_.LoopSilence(At(5)), std::chrono::seconds(1));
  EXPECT_EQ(state_.LoopSilence(At(3)), std::chrono::seconds(0));
}

TEST_F(JobStateTest, MayBeReadWhileItChanges) {
  Launch(2);
  std::thread writer([&] { Steps(2, 1, 200, 0); });
  int64_t last = 0;
  while (last < 200) {
    state_.Tick(At(0));
    const JobSnapshot snapshot = state_.Snapshot(At(30));
    const int64_t step = snapshot.progress ? snapshot.progress->step : 0;
    EXPECT_GE(step, last);
    last = step;
  }
  writer.join();
}

}  // namespace
}  // namespace lockstep::telemetry
