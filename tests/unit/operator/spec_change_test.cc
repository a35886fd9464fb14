// What a change of a job's spec does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::VariantWith;

std::string PodsOf(const std::string& spec) { return ReadJobManifest(NewJob(spec).job, {}).pods; }

// Of a job whose child says what its pods were made of.
Observed KnownJob(const std::string& spec = SpecOf()) {
  Observed observed = RunningJob(spec);
  observed.jobs[0].pods = PodsOf(spec);
  return observed;
}

void Change(Observed& observed, const std::string& spec) {
  observed.job.spec = spec;
  observed.job.generation += 1;
}

// The same, held back since then; its pods are gone.
Observed SuspendedJob() {
  Observed observed = KnownJob();
  Change(observed, SpecOf(R"("suspend":true)"));
  Carry(observed, seconds(10));
  observed.jobs[0].suspended = true;
  observed.pods.clear();
  return observed;
}

TEST(SpecChangeTest, TheChildSaysWhatItsPodsAreMadeOf) {
  const Observed observed = NewJob();
  const Manifest manifest = ReadJobManifest(observed.job, {});
  const nlohmann::json job = JobObject(observed.job, manifest, {.role = "worker"}, {});
  EXPECT_EQ(job["metadata"]["annotations"]["lockstep.dev/pods"], manifest.pods);
  EXPECT_EQ(ReadChildJob(job).pods, manifest.pods);
}

TEST(SpecChangeTest, WhatPodsAreMadeOfIsAllButWhatTheOperatorDoesItself) {
  const std::string as_it_was = PodsOf(SpecOf());
  EXPECT_EQ(as_it_was.size(), 25U);
  for (const char* same :
       {R"("suspend":true)", R"("runPolicy":{"maxRestarts":9})", R"("runPolicy":{"activeDeadlineSeconds":9})",
        R"("runPolicy":{"ttlSecondsAfterFinished":9})", R"("runPolicy":{"scheduleTimeoutSeconds":9})",
        R"("runPolicy":{"cleanPodPolicy":"All"})"}) {
    EXPECT_EQ(PodsOf(SpecOf(same)), as_it_was) << same;
  }
  for (const char* other :
       {R"("template":{"spec":{"nodeSelector":{"a":"b"}}})", R"("runPolicy":{"minReplicas":1})",
        R"("runPolicy":{"gang":"Volcano"})", R"("runPolicy":{"terminationGracePeriodSeconds":1})",
        R"("http":{"port":9090})"}) {
    EXPECT_NE(PodsOf(SpecOf(other)), as_it_was) << other;
  }
}

TEST(SpecChangeTest, WhatMayChangeIsAppliedToAJobThatRuns) {
  Observed observed = KnownJob();
  Change(observed, SpecOf(PolicyOf(R"("activeDeadlineSeconds":100)")));
  Plan plan = Carry(observed, seconds(40));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(plan.look_again, seconds(60));
  EXPECT_EQ(observed.job.status.observed_generation, 2);
  EXPECT_EQ(observed.job.status.attempt, 0);

  // No restart more.
  Change(observed, SpecOf(PolicyOf(R"("maxRestarts":0)")));
  observed.jobs[0].failed = 2;
  plan = Carry(observed, seconds(50));
  EXPECT_EQ(observed.job.status.phase, Phase::kFailed);

  Change(observed, SpecOf(PolicyOf(R"("ttlSecondsAfterFinished":20)")));
  EXPECT_THAT(PlanAt(observed, seconds(70)).actions,
              ElementsAre(VariantWith<DeleteTrainingJob>(DeleteTrainingJob{})));
}

TEST(SpecChangeTest, AJobThatWasChangedWhileSuspendedGetsNewPods) {
  Observed observed = SuspendedJob();
  Change(observed, SpecOf(R"("suspend":true)", 4));
  EXPECT_THAT(Carry(observed, seconds(20)).actions, IsEmpty());
  EXPECT_EQ(observed.job.status.replicas.desired, 4);

  Change(observed, SpecOf("", 4));
  Plan plan = Carry(observed, seconds(30));
  EXPECT_THAT(plan.actions, IsEmpty()) << "first it is written";
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, 0);
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
  EXPECT_FALSE(observed.job.status.Is(kSuspended));
  EXPECT_THAT(plan.events, ElementsAre(PlannedEvent{false, "SpecChanged",
                                                    "the pods are made anew, as the spec now says"}));

  plan = Carry(observed, seconds(31));
  EXPECT_THAT(plan.actions, ElementsAre(VariantWith<DeleteJob>(DeleteJob{"digits-worker-0", "job-0"}),
                                        VariantWith<CreateSecret>(CreateSecret{}),
                                        VariantWith<CreateJob>(CreateJob{.role = "worker", .attempt = 1})));
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "NewAttempt");
}

TEST(SpecChangeTest, AJobThatWasOnlySuspendedKeepsItsChild) {
  Observed observed = SuspendedJob();
  Change(observed, SpecOf());
  EXPECT_THAT(Carry(observed, seconds(20)).actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", false})));
  EXPECT_EQ(observed.job.status.attempt, 0);
}

TEST(SpecChangeTest, AMistakeWhileTheJobIsSuspendedCanBeMended) {
  Observed observed = SuspendedJob();
  Change(observed, SpecOf(R"("template":{"spec":{"restartPolicy":"Always"}})"));
  Plan plan = Carry(observed, seconds(20));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(plan.events.size(), 1U);
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  EXPECT_EQ(observed.job.status.Find(kSuspended)->reason, "InvalidTemplate");
  EXPECT_FALSE(PlanAt(observed, seconds(21)).status) << "at rest";
  Change(observed, SpecOf());
  EXPECT_THAT(Carry(observed, seconds(30)).actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", false})));
}

// The operator was away from before the suspension until after the resumption.
TEST(SpecChangeTest, AChangeThatWasNotSeenIsFoundOut) {
  Observed observed = KnownJob();
  Change(observed, SpecOf(R"("http":{"port":9090})"));
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.Find(kRunning)->reason, "SpecChanged");
}

TEST(SpecChangeTest, AnotherVersionOfTheOperatorLeavesAJobThatRuns) {
  Observed observed = KnownJob();
  observed.jobs[0].pods = "00000000-0123456789abcdef";
  EXPECT_THAT(Carry(observed, seconds(30)).actions, IsEmpty());
  EXPECT_EQ(observed.job.status.attempt, 0);
}

}  // namespace
}  // namespace lockstep::op
