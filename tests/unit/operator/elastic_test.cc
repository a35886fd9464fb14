// What the planner makes of runPolicy.minReplicas.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/operator/gang.h"
#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::VariantWith;

// Four replicas, of which `needed` are enough; all run.
Observed ElasticJob(int needed = 2, const std::string& more = "") {
  const std::string policy = R"("minReplicas":)" + std::to_string(needed) + more;
  Observed observed = NewJob(SpecOf(PolicyOf(policy), 4));
  Carry(observed);
  observed.services = {{"digits-worker", "service"}};
  observed.jobs = {RunningChild()};
  observed.jobs[0].active = 4;
  for (int i = 0; i < 4; ++i) observed.pods.push_back(RunningPod(i));
  Carry(observed);
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  return observed;
}

void Lose(Observed& observed, int index) {
  observed.pods[static_cast<size_t>(index)] = PendingPod(index);
  observed.jobs[0].failed += 1;
}

TEST(ElasticTest, LostPodsAreNoReasonForANewAttemptWhileEnoughRun) {
  Observed observed = ElasticJob();
  Lose(observed, 3);
  Plan plan = Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  EXPECT_EQ(observed.job.status.Find(kRunning)->reason, "FewerReplicas");
  EXPECT_EQ(observed.job.status.Find(kRunning)->message, "3 of 4 replicas run");
  EXPECT_EQ(observed.job.status.replicas.desired, 4);
  EXPECT_THAT(plan.events, ElementsAre(PlannedEvent{true, "Shrunk", "3 of 4 replicas run"}));

  Lose(observed, 2);
  Carry(observed, seconds(60));
  EXPECT_EQ(observed.job.status.Find(kRunning)->message, "2 of 4 replicas run");
  EXPECT_EQ(observed.job.status.attempt, 0);
  EXPECT_EQ(observed.job.status.restarts, 0);
  EXPECT_FALSE(PlanAt(observed, seconds(61)).status) << "at rest";

  Lose(observed, 1);
  Carry(observed, seconds(90));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.Find(kRestarting)->reason, "PodsLost");
}

TEST(ElasticTest, GrowsAgain) {
  Observed observed = ElasticJob();
  Lose(observed, 3);
  Carry(observed, seconds(30));
  observed.pods[3] = RunningPod(3);
  const Plan plan = Carry(observed, seconds(50));
  EXPECT_THAT(plan.events, ElementsAre(PlannedEvent{false, "Grown", "all replicas run"}));
  EXPECT_EQ(observed.job.status.Find(kRunning)->reason, "PodsRunning");
}

TEST(ElasticTest, Replica0IsAlwaysWaitedFor) {
  Observed observed = ElasticJob();
  Lose(observed, 0);
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
}

TEST(ElasticTest, APodThatDoesNotEndIsLeftToItsNode) {
  Observed observed = ElasticJob();
  observed.pods[1].delete_by = kCreated + seconds(10);
  Carry(observed, seconds(1000));
  EXPECT_EQ(observed.job.status.attempt, 0);
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);

  Observed without_replica_0 = ElasticJob();
  without_replica_0.pods[0].delete_by = kCreated + seconds(10);
  Carry(without_replica_0, seconds(1000));
  EXPECT_EQ(without_replica_0.job.status.attempt, 1);
}

TEST(ElasticTest, AJobThatBeginsWithFewerRunsOnceItsAgentsSaySo) {
  Observed observed = NewJob(SpecOf(PolicyOf(R"("minReplicas":1,"scheduleTimeoutSeconds":5)")));
  Carry(observed);
  observed.jobs = {RunningChild()};
  observed.pods = {RunningPod(0), PendingPod(1)};
  Carry(observed, seconds(1));
  EXPECT_EQ(observed.job.status.phase, Phase::kScheduled);
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "FewerReplicas");
  EXPECT_THAT(observed.job.status.Find(kScheduled)->message, testing::StartsWith("1 of 2 pods have a node"));

  observed.report = AgentReport{.pod_uid = RunningPod(0).uid, .progress = JobProgress{.step = 1}};
  Carry(observed, seconds(2));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  Carry(observed, seconds(100));
  EXPECT_EQ(observed.job.status.attempt, 0) << "it is not partly scheduled";
}

TEST(ElasticTest, EndsWithThoseThatItWentOnWith) {
  Observed observed = ElasticJob();
  Lose(observed, 3);
  Carry(observed, seconds(30));
  for (int i = 0; i < 2; ++i) observed.pods[static_cast<size_t>(i)].phase = PodPhase::kSucceeded;
  Carry(observed, seconds(40));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning) << "replica 2 still runs";
  observed.pods[2].phase = PodPhase::kSucceeded;
  Carry(observed, seconds(41));
  EXPECT_EQ(observed.job.status.phase, Phase::kSucceeded);
  EXPECT_EQ(observed.job.status.Find(kComplete)->message, "3 of 4 replicas have ended well");
  // The Job would make the fourth for ever.
  EXPECT_THAT(PlanAt(observed, seconds(42)).actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", true})));
}

TEST(ElasticTest, WhoCameTooLateForTheJobIsNotWaitedFor) {
  Observed observed = ElasticJob();
  for (int i = 0; i < 3; ++i) {
    ChildPod& pod = observed.pods[static_cast<size_t>(i)];
    pod.phase = PodPhase::kSucceeded;
    pod.ended_at = kCreated + seconds(40);
  }
  const Plan plan = PlanAt(observed, seconds(41));
  EXPECT_EQ(plan.look_again, seconds(9));
  Carry(observed, seconds(41));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning) << "replica 3 may be about to end";
  Carry(observed, seconds(50));
  EXPECT_EQ(observed.job.status.phase, Phase::kSucceeded);
  EXPECT_EQ(observed.job.status.Find(kComplete)->message, "3 of 4 replicas have ended well");
}

TEST(ElasticTest, WithoutItAllReplicasAreNeeded) {
  Observed observed = RunningJob();
  observed.pods[1] = PendingPod(1);
  observed.pods[0].phase = PodPhase::kSucceeded;
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
}

TEST(ElasticTest, AGangNeedsNoMoreThanTheJobDoes) {
  const Observed observed = ElasticJob(3, R"(,"gang":"Coscheduling")");
  const Manifest manifest = ReadJobManifest(observed.job, {});
  EXPECT_EQ(GangObject(observed.job, *manifest.job, 0)["spec"]["minMember"], 3);
}

TEST(ElasticTest, TheJobAsksForAllAndTriesThemWithoutEnd) {
  const Observed observed = ElasticJob();
  const Manifest manifest = ReadJobManifest(observed.job, {});
  const nlohmann::json job = JobObject(observed.job, manifest, {.role = "worker"}, {});
  EXPECT_EQ(job["spec"]["completions"], 4);
  EXPECT_EQ(job["spec"]["parallelism"], 4);
  EXPECT_EQ(job["spec"]["backoffLimit"], 1'000'000);
}

}  // namespace
}  // namespace lockstep::op
