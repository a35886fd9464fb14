#include "launcher/telemetry/job_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/telemetry/exposition.h"
#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

using ::testing::HasSubstr;

class JobStateTest : public ::testing::Test {
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
    return ParseExposition(metrics_.Render(MetricsFormat::kPrometheusText, {})).Value(name, labels);
  }
  double Lost(Loss loss, double now) { return state_.Snapshot(At(now)).time.lost_to(loss); }

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
  EXPECT_FALSE(snapshot.progress->loss_average) << "nobody told it";
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
  EXPECT_EQ(Metric("lockstep_steps_total"), 60);             // the repeated ones too: counters only go up
  EXPECT_NEAR(again.time.lost_to(Loss::kRestart), 3, 1e-6);  // step 40 at 4, again at 7
  EXPECT_NEAR(*again.goodput, 5.0 / 8, 1e-6);
}

TEST_F(JobStateTest, EachLossHasItsReasonAndTogetherTheyAreTheJobsTime) {
  Launch(2, 0, 3);  // 3 s until the processes start, one more until they step
  const auto step = [&](int rank, int64_t number, double at, double collective, double data_wait = 0) {
    state_.ApplyEvent(
        rank,
        contract::StepEvent{
            .step = number, .seconds = 1, .collective_seconds = collective, .data_wait_seconds = data_wait},
        At(at));
  };
  for (int64_t number = 1; number <= 10; ++number) {
    const double at = 4 + static_cast<double>(number);
    step(1, number, at, 0.125);  // the slower one
    step(0, number, at, 0.375, 0.25);
  }
  EXPECT_NEAR(Lost(Loss::kWaitingForResources, 14), 3, 1e-9);
  EXPECT_NEAR(Lost(Loss::kStart, 14), 1, 1e-9);
  state_.ApplyEvent(0, contract::EvaluationEvent{.split = "test", .seconds = 0.5}, At(14.5));
  state_.ApplyEvent(1, contract::EvaluationEvent{.split = "test", .seconds = 0.5}, At(14.5));
  state_.ApplyEvent(0, contract::CheckpointEvent{.step = 10, .seconds = 5, .blocking_seconds = 0.25},
                    At(14.75));
  state_.Restarting(RestartReason::kReplicaLost, {}, At(15));
  EXPECT_NEAR(Lost(Loss::kEvaluation, 15), 0.5, 1e-9);
  EXPECT_NEAR(Lost(Loss::kCheckpoint, 15), 0.25, 1e-9);
  // Of the mean rank; its last step may be missing.
  const double data_wait = Lost(Loss::kDataWait, 15), straggler = Lost(Loss::kStraggler, 15);
  EXPECT_NEAR(data_wait, 1.25, 0.13);
  EXPECT_NEAR(straggler, 1.25 - 0.125, 0.13) << "what rank 1 waited for the checkpoint is not straggling too";
  EXPECT_NEAR(Metric("lockstep_exposed_communication_seconds_total"), 1.25, 0.13);
  Launch(2, 1, 25);
  EXPECT_NEAR(Lost(Loss::kWaitingForResources, 25), 13, 1e-9);
  step(1, 11, 27, 0);
  step(0, 11, 27, 0);
  EXPECT_NEAR(Lost(Loss::kRestart, 27), 1.25, 1e-9);  // and from 14.75, when nothing else went on, to 15
  state_.Finished(true, std::nullopt, At(28));
  const JobTime time = state_.Snapshot(At(40)).time;
  EXPECT_NEAR(time.productive, 28 - 13 - 1 - 1.25 - 0.5 - 0.25 - data_wait - straggler, 1e-9);
  double sum = time.productive;
  for (const double lost : time.lost) sum += lost;
  EXPECT_NEAR(sum, 28, 1e-9);
  EXPECT_NEAR(*state_.Snapshot(At(40)).goodput, time.productive / 28, 1e-9);
}

TEST_F(JobStateTest, TheStragglerIsNamedWithItsDelay) {
  Launch(3);
  for (int64_t number = 1; number <= 20; ++number) {
    for (int rank = 0; rank < 3; ++rank) {
      state_.ApplyEvent(
          rank,
          contract::StepEvent{.step = number, .seconds = 0.1, .collective_seconds = rank == 1 ? 0.01 : 0.05},
          At(0.1 * static_cast<double>(number)));
    }
  }
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  ASSERT_TRUE(snapshot.straggler);
  EXPECT_EQ(snapshot.straggler->rank, 1);
  EXPECT_NEAR(snapshot.straggler->delay, 0.04, 1e-9);
  EXPECT_NEAR(*snapshot.ranks[1].delay, 0.04, 1e-9);
  EXPECT_NEAR(*snapshot.ranks[0].delay, 0, 1e-9);
  const JobFigures figures = state_.Figures(At(2));
  ASSERT_EQ(figures.delays.size(), 3u);
  EXPECT_EQ(figures.delays[1].rank.process, 1);
  EXPECT_TRUE(figures.time);
  state_.Restarting(RestartReason::kSignal, {}, At(3));
  EXPECT_FALSE(state_.Snapshot(At(3)).straggler) << "of a generation that is over";
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

TEST_F(JobStateTest, ARankThatWaitsForTheNextGenerationIsShownAsRegrouping) {
  Launch(2);
  state_.ApplyEvent(0, contract::RegroupEvent{.step = 7}, At(1));
  state_.ApplyEvent(1, contract::PhaseEvent{.phase = "Regrouping"}, At(1));  // that is no phase to announce
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  EXPECT_EQ(snapshot.ranks[0].phase, RankPhase::kRegrouping);
  EXPECT_EQ(snapshot.ranks[0].step, 7);
  EXPECT_EQ(snapshot.ranks[1].phase, RankPhase::kStarting);
}

TEST_F(JobStateTest, ForgetsTheRanksOfALargerWorld) {
  Launch(4);
  state_.Restarting(RestartReason::kDeviceFailed, {}, At(1));
  state_.WorldChanged(3, std::vector<RankIdentity>{{.rank = 0}, {.rank = 1}, {.rank = 2}});
  Launch(3, 1, 2);
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  EXPECT_EQ(snapshot.description.world_size, 3);
  ASSERT_EQ(snapshot.ranks.size(), 3u);
  EXPECT_EQ(snapshot.ranks[2].identity.rank, 2);
  EXPECT_EQ(Metric("lockstep_restarts_total", {{"reason", "DeviceFailed"}}), 1);
}

TEST_F(JobStateTest, AllRanksAreThereBeforeTheFirstIsStarted) {
  state_.WorldChanged(2, std::vector<RankIdentity>{{.rank = 0}, {.rank = 1, .role = "worker"}});
  state_.GenerationStarted(0, At(0));
  state_.RankStarted({.rank = 0}, 1000, At(0));
  const JobSnapshot snapshot = state_.Snapshot(At(1));
  ASSERT_EQ(snapshot.ranks.size(), 2u);
  EXPECT_EQ(snapshot.ranks[0].state, RankState::kRunning);
  EXPECT_EQ(snapshot.ranks[1].state, RankState::kPending);
  EXPECT_EQ(snapshot.ranks[1].identity.role, "worker");
  EXPECT_EQ(snapshot.ranks[1].pid, 0);
}

TEST_F(JobStateTest, GoingOnWithOtherReplicasIsNoRestart) {
  Launch(2);
  state_.Resizing(At(1));
  EXPECT_EQ(state_.Snapshot(At(1)).phase, JobPhase::kRestarting);
  EXPECT_TRUE(state_.Snapshot(At(1)).resizing);
  state_.ReplicasLeftOut({1});
  Launch(2, 1);
  const JobSnapshot snapshot = state_.Snapshot(At(2));
  EXPECT_FALSE(snapshot.resizing);
  EXPECT_EQ(snapshot.restarts, 0);
  EXPECT_FALSE(snapshot.last_failure);
  EXPECT_THAT(snapshot.left_out, ::testing::ElementsAre(1));
  EXPECT_EQ(Metric("lockstep_restarts_total", {{"reason", "Resized"}}), 1);
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
  state_.ApplyEvent(1, contract::ReadyEvent{.layers = "dense_1, dense_2"}, At(2));
  EXPECT_EQ(state_.Snapshot(At(2)).ranks[1].layers, "dense_1, dense_2");
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

// A job of a server (rank 0), a worker (rank 1) and an evaluator (rank 2).
class RolesStateTest : public JobStateTest {
 protected:
  void SetUp() override {
    state_.WorldChanged(3, ranks_, /*speaker=*/1);
    state_.GenerationStarted(0, At(0));
    for (const RankIdentity& rank : ranks_) state_.RankStarted(rank, 1000 + rank.rank, At(0));
  }

  const std::vector<RankIdentity> ranks_ = {{.rank = 0, .role = "ps", .process = 0, .steps = false},
                                            {.rank = 1, .role = "worker", .process = 1},
                                            {.rank = 2, .role = "evaluator", .process = 2, .steps = false}};
};

TEST_F(RolesStateTest, TheWorkersStepsAreTheJobs) {
  Step(1, 1, 0.1);
  Step(0, 7, 0.2);
  EXPECT_EQ(state_.Snapshot(At(0.3)).progress->step, 1);
  EXPECT_EQ(Metric("lockstep_steps_total"), 1);
  EXPECT_TRUE(state_.Snapshot(At(0.3)).ready);
}

TEST_F(RolesStateTest, TheEvaluatorsEvaluationsAreTheJobs) {
  Step(1, 1, 0.1);
  state_.ApplyEvent(2, contract::EvaluationEvent{.split = "validation", .loss = 1, .accuracy = 0.75},
                    At(0.2));
  EXPECT_EQ(state_.Snapshot(At(0.3)).progress->accuracy, 0.75);
  state_.ApplyEvent(0, contract::EvaluationEvent{.split = "validation", .loss = 1, .accuracy = 0.25},
                    At(0.2));
  EXPECT_EQ(state_.Snapshot(At(0.3)).progress->accuracy, 0.75);
}

TEST_F(RolesStateTest, WhoTakesNoStepsCannotHang) {
  ASSERT_EQ(state_.rank_progress().size(), 1u);
  EXPECT_EQ(state_.rank_progress()[0].rank, 1);
}

TEST_F(RolesStateTest, ALauncherOfServersIsReadyWhenTheyRun) {
  state_.WorldChanged(3, std::span(ranks_).first(1), /*speaker=*/1);
  EXPECT_FALSE(state_.Snapshot(At(1)).ready);
  EXPECT_TRUE(state_.Snapshot(At(6)).ready);
}

TEST_F(RolesStateTest, OneThatRestartsAloneCountsAndTheJobRunsOn) {
  Step(1, 1, 0.1);
  state_.RestartingAlone(RestartReason::kSignal, {.rank = 0, .role = "ps", .role_rank = 0}, At(0.2));
  const JobSnapshot snapshot = state_.Snapshot(At(0.3));
  EXPECT_EQ(snapshot.phase, JobPhase::kRunning);
  EXPECT_EQ(snapshot.restarts, 1);
  EXPECT_EQ(snapshot.last_failure->role, "ps");
  EXPECT_EQ(Metric("lockstep_restarts_total", {{"reason", "Signal"}, {"role", "ps"}}), 1);
}

TEST_F(JobStateTest, KeepsTheCurveOverGenerations) {
  Launch(2);
  for (int step = 1; step <= 4; ++step) Step(0, step, 1 + step, 1);
  state_.Restarting(RestartReason::kSignal, {.rank = 1, .reason = "Signal", .message = "killed"}, At(6));
  Launch(2, 1, 20);
  for (int step = 3; step <= 4; ++step) Step(0, step, 19 + step, 1);
  state_.ApplyEvent(0, contract::StepEvent{.step = 5, .samples = 10, .seconds = 1}, At(24));
  const auto curve = state_.curve();
  ASSERT_EQ(curve.size(), 7u);
  EXPECT_NEAR(curve[0].seconds, 2, 1e-6);
  EXPECT_EQ(curve[0].loss, 1);
  EXPECT_NEAR(*curve[0].samples_per_second, 10, 0.01);
  // The standstill is no slow training.
  EXPECT_EQ(curve[4].step, 3);
  EXPECT_NEAR(*curve[4].samples_per_second, 10, 0.01);
  EXPECT_FALSE(curve[6].loss) << "not told";
  EXPECT_FALSE(state_.Snapshot(At(25)).progress->loss);
}

TEST_F(JobStateTest, TellsWhyEachGenerationEndedAndWhoWasStartedAgain) {
  Launch(2);
  state_.Restarting(RestartReason::kSignal, {.rank = 1, .reason = "Signal", .message = "rank 1: killed"},
                    At(3));
  state_.GenerationStarted(1, At(4));
  state_.RankStarted({.rank = 0}, 1000, At(4));  // it waited, and goes on
  state_.RankStarted({.rank = 1}, 2001, At(4));
  state_.RestartingAlone(RestartReason::kSignal, {.rank = 1, .reason = "Signal"}, At(5));
  state_.RankStarted({.rank = 1}, 2002, At(5));
  state_.Resizing(At(6));
  Launch(2, 2, 7);
  state_.FailedElsewhere("rank 5: exit code 1", At(7.5));
  Launch(2, 3, 7.75);
  state_.Finished(true, std::nullopt, At(8));
  const JobSnapshot snapshot = state_.Snapshot(At(9));
  ASSERT_EQ(snapshot.generations.size(), 4u);
  EXPECT_EQ(snapshot.generations[0].message, "rank 1: killed");
  EXPECT_EQ(snapshot.generations[0].ended, 3);
  EXPECT_EQ(snapshot.generations[1].began, 4);
  EXPECT_EQ(snapshot.generations[1].restarted_alone, 1);
  EXPECT_EQ(snapshot.generations[1].reason, "Resized");
  EXPECT_EQ(snapshot.generations[2].reason, "Failure");
  EXPECT_EQ(snapshot.generations[2].message, "rank 5: exit code 1");
  EXPECT_EQ(snapshot.generations[3].reason, "Succeeded");
  EXPECT_EQ(snapshot.generations[3].ended, 8);
  EXPECT_EQ(snapshot.ranks[0].restarts, 0);
  EXPECT_EQ(snapshot.ranks[1].restarts, 3);
}

}  // namespace
}  // namespace lockstep::telemetry
