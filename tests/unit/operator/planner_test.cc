#include "launcher/operator/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::VariantWith;

// Nothing is done, written or told.
void ExpectRest(const Plan& plan) {
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_FALSE(plan.status.has_value());
}

ChildPod FailedPod(int index, const std::string& message, int exit_code = 3) {
  ChildPod pod = RunningPod(index);
  pod.phase = PodPhase::kFailed;
  pod.exit_code = exit_code;
  pod.exit_reason = "Error";
  pod.exit_message = message;
  return pod;
}

TEST(PlannerTest, MakesTheServiceBeforeTheJobAndSaysThatItIsPending) {
  const Plan plan = PlanAt(NewJob());
  EXPECT_THAT(plan.actions, ElementsAre(VariantWith<CreateSecret>(CreateSecret{}),
                                        VariantWith<CreateService>(CreateService{"worker"}),
                                        VariantWith<CreateJob>(CreateJob{.role = "worker"})));
  ASSERT_TRUE(plan.status);
  EXPECT_EQ(plan.status->phase, Phase::kPending);
  EXPECT_EQ(plan.status->observed_generation, 1);
  EXPECT_EQ(plan.status->replicas.desired, 2);
}

TEST(PlannerTest, GivesAJobOfOneReplicaNeitherServiceNorSecret) {
  EXPECT_THAT(PlanAt(NewJob(SpecOf("", 1))).actions,
              ElementsAre(VariantWith<CreateJob>(CreateJob{.role = "worker"})));
}

TEST(PlannerTest, PlansTheSameAgainWhenNothingCameOfIt) {
  Observed observed = NewJob();
  const Plan first = Carry(observed);
  const Plan again = PlanAt(observed, seconds(1));
  EXPECT_EQ(again.actions, first.actions);
  EXPECT_FALSE(again.status);
  EXPECT_THAT(again.events, IsEmpty());
}

TEST(PlannerTest, GoesFromPendingOverScheduledToRunning) {
  Observed observed = NewJob();
  Carry(observed);
  observed.services = {{"digits-worker", "service"}};
  observed.jobs = {RunningChild()};
  observed.pods = {PendingPod(0), PendingPod(1)};
  Carry(observed, seconds(1));
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "Unschedulable");
  EXPECT_THAT(observed.job.status.Find(kScheduled)->message, HasSubstr("0 of 2 pods"));

  for (ChildPod& pod : observed.pods) pod.scheduled = true, pod.unschedulable.clear();
  Carry(observed, seconds(2));
  EXPECT_EQ(observed.job.status.phase, Phase::kScheduled);
  EXPECT_TRUE(observed.job.status.Is(kScheduled));

  observed.pods[0].waiting = "ImagePullBackOff";
  Carry(observed, seconds(3));
  EXPECT_THAT(observed.job.status.Find(kRunning)->message, HasSubstr("ImagePullBackOff"));

  observed.pods = {RunningPod(0), RunningPod(1)};
  const Plan plan = Carry(observed, seconds(4));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  EXPECT_EQ(observed.job.status.Find(kRunning)->last_transition, kCreated + seconds(4));
  EXPECT_EQ(observed.job.status.start_time, kCreated);
  EXPECT_THAT(plan.events, ElementsAre(PlannedEvent{false, "Started", "all replicas run"}));
  ExpectRest(PlanAt(observed, seconds(5)));
}

TEST(PlannerTest, SucceedsWhenTheChildIsComplete) {
  Observed observed = RunningJob();
  observed.jobs[0].complete = true;
  observed.jobs[0].active = 0;
  observed.jobs[0].succeeded = 2;
  const Plan plan = Carry(observed, seconds(60));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.phase, Phase::kSucceeded);
  EXPECT_EQ(observed.job.status.completion_time, kCreated + seconds(60));
  EXPECT_EQ(observed.job.status.replicas.succeeded, 2);
  EXPECT_TRUE(observed.job.status.Is(kComplete));
  EXPECT_FALSE(observed.job.status.Is(kRunning));
  ExpectRest(PlanAt(observed, seconds(61)));
}

TEST(PlannerTest, StaysFinishedWhateverBecomesOfItsChildren) {
  Observed observed = RunningJob();
  observed.jobs[0].complete = true;
  Carry(observed, seconds(60));
  observed.jobs.clear();
  observed.pods.clear();
  ExpectRest(PlanAt(observed, seconds(61)));
}

TEST(PlannerTest, FailsAsTheAgentsAgreed) {
  Observed observed = RunningJob();
  observed.jobs[0].failing = true;
  observed.jobs[0].failure_reason = "PodFailurePolicy";
  observed.jobs[0].failure_message = "container failed with exit code 3";
  observed.jobs[0].failed_at = kCreated + seconds(30);
  observed.pods[1] = FailedPod(
      1, VerdictText({.exit_code = 137, .reason = "OOMKilled", .message = "rank 1: killed", .replica = 1}));
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kFailed);
  EXPECT_EQ(observed.job.status.Find(kFailed)->reason, "JobFailed");
  ASSERT_TRUE(observed.job.status.last_failure);
  EXPECT_EQ(observed.job.status.last_failure->exit_code, 137);
  EXPECT_EQ(observed.job.status.last_failure->reason, "OOMKilled");
  EXPECT_EQ(observed.job.status.last_failure->replica, 1);
}

TEST(PlannerTest, WaitsALittleForTheNewsOfThePodThatFailedTheJob) {
  Observed observed = RunningJob();
  observed.jobs[0].failing = true;
  observed.jobs[0].failure_reason = "PodFailurePolicy";
  observed.jobs[0].failed_at = kCreated + seconds(30);
  const Plan waiting = PlanAt(observed, seconds(30));
  EXPECT_FALSE(waiting.status);
  EXPECT_EQ(waiting.look_again, seconds(5));
  const Plan given_up = PlanAt(observed, seconds(35));
  ASSERT_TRUE(given_up.status);
  EXPECT_EQ(given_up.status->phase, Phase::kFailed);
}

TEST(PlannerTest, LeavesTheFirstLostPodToItsJobAndGoesToANewAttemptAtTheSecond) {
  Observed observed = RunningJob();
  observed.jobs[0].failed = 1;
  observed.pods[1] = PendingPod(1);
  Plan plan = Carry(observed, seconds(30));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
  EXPECT_EQ(observed.job.status.attempt, 0);
  EXPECT_EQ(observed.job.status.restarts, 0);

  observed.jobs[0].failed = 2;
  plan = Carry(observed, seconds(50));
  EXPECT_THAT(plan.actions, IsEmpty()) << "first it is written";
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, 1);
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
  EXPECT_TRUE(observed.job.status.Is(kRestarting));

  plan = Carry(observed, seconds(50));
  EXPECT_THAT(plan.actions, ElementsAre(VariantWith<DeleteJob>(DeleteJob{"digits-worker-0", "job-0"})));

  // The pods of attempt 0 hold their devices until they have ended.
  observed.jobs.clear();
  observed.pods = {RunningPod(0)};
  observed.pods[0].delete_by = kCreated + seconds(85);
  plan = Carry(observed, seconds(51));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_TRUE(plan.look_again);

  observed.pods.clear();
  plan = Carry(observed, seconds(60));
  EXPECT_THAT(plan.actions,
              ElementsAre(VariantWith<CreateSecret>(CreateSecret{}),
                          VariantWith<CreateJob>(CreateJob{.role = "worker", .attempt = 1, .restarts = 1})));

  observed.jobs = {RunningChild(1, 1)};
  observed.pods = {RunningPod(0, 1), RunningPod(1, 1)};
  plan = Carry(observed, seconds(62));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  EXPECT_FALSE(observed.job.status.Is(kRestarting));
  EXPECT_THAT(plan.events, ElementsAre(PlannedEvent{false, "Recovered", "all replicas run"}));
  ExpectRest(PlanAt(observed, seconds(63)));
}

TEST(PlannerTest, DoesNotWaitForPodsOfADeadNodeForEver) {
  Observed observed = RunningJob();
  observed.pods[1].delete_by = kCreated + seconds(100);
  Plan plan = Carry(observed, seconds(100));
  EXPECT_EQ(plan.look_again, seconds(60));
  EXPECT_EQ(observed.job.status.attempt, 0);

  Carry(observed, seconds(160));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.Find(kRestarting)->reason, "PodStuck");

  observed.jobs.clear();
  observed.pods = {observed.pods[1]};
  plan = Carry(observed, seconds(161));
  EXPECT_THAT(
      plan.actions,
      testing::Contains(VariantWith<CreateJob>(CreateJob{.role = "worker", .attempt = 1, .restarts = 1})));
}

TEST(PlannerTest, CountsALostNodeAsNoFailure) {
  for (const bool disrupted : {true, false}) {
    Observed observed = RunningJob(SpecOf(PolicyOf(R"("maxRestarts":0)")));
    observed.pods[1].delete_by = kCreated + seconds(100);
    observed.pods[1].disrupted = disrupted;  // as the taint of its node makes it
    Carry(observed, seconds(160));
    EXPECT_EQ(observed.job.status.restarts, 0);
    EXPECT_EQ(observed.job.status.attempt, disrupted ? 1 : 0);
    EXPECT_EQ(observed.job.status.Is(kFailed), !disrupted)
        << "nor does the job wait for ever without a restart";
  }
}

TEST(PlannerTest, FailsWhenPodsAreLostAndNoRestartIsLeft) {
  Observed observed = RunningJob(SpecOf(PolicyOf(R"("maxRestarts":1)")));
  observed.job.status.restarts = 1;
  observed.jobs[0].failed = 2;
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.Find(kFailed)->reason, "PodsLost");
  EXPECT_THAT(observed.job.status.Find(kFailed)->message, HasSubstr("no restart is left"));
}

TEST(PlannerTest, CountsADrainedPodAsNoFailure) {
  Observed observed = RunningJob();
  observed.pods[1] = FailedPod(1, "", 143);
  observed.pods[1].disrupted = true;
  observed.pods.push_back(PendingPod(1));
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
  EXPECT_EQ(observed.job.status.attempt, 0);
  EXPECT_EQ(observed.job.status.restarts, 0);
  EXPECT_FALSE(observed.job.status.last_failure);
}

TEST(PlannerTest, FailsWhenNoRestartIsLeft) {
  Observed observed = RunningJob(SpecOf(PolicyOf(R"("maxRestarts":0)")));
  observed.jobs[0].failing = true;
  observed.jobs[0].failed = 1;
  observed.jobs[0].failure_reason = "BackoffLimitExceeded";
  observed.jobs[0].failure_message = "Job has reached the specified backoff limit";
  observed.pods[0] = FailedPod(0, "", 137);
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kFailed);
  EXPECT_EQ(observed.job.status.Find(kFailed)->reason, "BackoffLimitExceeded");
  EXPECT_EQ(observed.job.status.last_failure->exit_code, 137);
}

TEST(PlannerTest, MakesADeletedChildANewAttempt) {
  Observed observed = RunningJob();
  observed.jobs.clear();
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.Find(kRestarting)->reason, "JobDeleted");
}

TEST(PlannerTest, EndsTheJobAtItsDeadlineAndThenStopsItsPods) {
  Observed observed = RunningJob(SpecOf(PolicyOf(R"("activeDeadlineSeconds":100)")));
  EXPECT_EQ(PlanAt(observed, seconds(40)).look_again, seconds(60));
  Plan plan = Carry(observed, seconds(100));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.Find(kFailed)->reason, "DeadlineExceeded");
  plan = PlanAt(observed, seconds(101));
  EXPECT_THAT(plan.actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", true})));
  EXPECT_FALSE(plan.status);
}

TEST(PlannerTest, DeletesAFinishedJobWhenItsTimeToLiveIsOver) {
  Observed observed = RunningJob(SpecOf(PolicyOf(R"("ttlSecondsAfterFinished":50)")));
  observed.jobs[0].complete = true;
  Carry(observed, seconds(10));
  EXPECT_EQ(PlanAt(observed, seconds(20)).look_again, seconds(40));
  EXPECT_THAT(PlanAt(observed, seconds(60)).actions,
              ElementsAre(VariantWith<DeleteTrainingJob>(DeleteTrainingJob{})));
}

TEST(PlannerTest, CleansUpAsThePolicySays) {
  struct Case {
    const char* policy;
    bool deletes;
  };
  for (const auto& [policy, deletes] : {Case{"None", false}, Case{"Running", false}, Case{"All", true}}) {
    Observed observed = RunningJob(SpecOf(PolicyOf(std::string(R"("cleanPodPolicy":")") + policy + "\"")));
    observed.jobs[0].complete = true;
    Carry(observed, seconds(10));
    EXPECT_EQ(PlanAt(observed, seconds(11)).actions.size(), deletes ? 1U : 0U) << policy;
  }
}

TEST(PlannerTest, SuspendsAndResumesWithoutCountingARestart) {
  Observed observed = RunningJob();
  observed.job.spec = SpecOf(R"("suspend":true)");
  observed.job.generation = 2;
  Plan plan = Carry(observed, seconds(30));
  EXPECT_THAT(plan.actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", true})));
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  EXPECT_EQ(observed.job.status.observed_generation, 2);
  EXPECT_FALSE(observed.job.status.start_time);

  observed.jobs[0].suspended = true;
  observed.jobs[0].started.reset();
  observed.jobs[0].active = 0;
  observed.pods.clear();
  ExpectRest(PlanAt(observed, seconds(31)));

  observed.job.spec = SpecOf();
  observed.job.generation = 3;
  plan = Carry(observed, seconds(60));
  EXPECT_THAT(plan.actions,
              ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-worker-0", "job-0", false})));

  observed.jobs[0].suspended = false;
  observed.jobs[0].started = kCreated + seconds(60);
  observed.jobs[0].active = 2;
  observed.pods = {RunningPod(0), RunningPod(1)};
  Carry(observed, seconds(62));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  EXPECT_EQ(observed.job.status.start_time, kCreated + seconds(60));
  EXPECT_FALSE(observed.job.status.Is(kSuspended));
  EXPECT_EQ(observed.job.status.restarts, 0);
}

TEST(PlannerTest, MakesNothingForAJobThatIsCreatedSuspended) {
  Observed observed = NewJob(SpecOf(R"("suspend":true)"));
  EXPECT_THAT(Carry(observed).actions, IsEmpty());
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  ExpectRest(PlanAt(observed, seconds(1)));
  observed.job.spec = SpecOf();
  EXPECT_EQ(Carry(observed, seconds(2)).actions.size(), 3U);
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
}

TEST(PlannerTest, LeavesAQueuedChildToKueue) {
  Observed observed = NewJob();
  observed.job.queue = "gpus";
  EXPECT_THAT(Carry(observed).actions,
              testing::Contains(VariantWith<CreateJob>(CreateJob{.role = "worker", .suspended = true})));
  observed.services = {{"digits-worker", "service"}};
  observed.jobs = {RunningChild()};
  observed.jobs[0].suspended = true;
  observed.jobs[0].started.reset();
  Plan plan = Carry(observed, seconds(1));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.phase, Phase::kSuspended);
  EXPECT_EQ(observed.job.status.Find(kSuspended)->reason, "Queued");

  observed.jobs[0].suspended = false;
  observed.jobs[0].started = kCreated + seconds(10);
  observed.pods = {RunningPod(0), RunningPod(1)};
  Carry(observed, seconds(11));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);

  // Evicted: no failure, no restart, and the clock of the deadline begins anew.
  observed.jobs[0].suspended = true;
  observed.pods.clear();
  plan = Carry(observed, seconds(20));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.Find(kSuspended)->reason, "Evicted");
  EXPECT_FALSE(observed.job.status.start_time);
  EXPECT_EQ(observed.job.status.restarts, 0);
}

TEST(PlannerTest, GivesTheQuotaOfAQueuedJobBackByDeletingItsChild) {
  Observed observed = RunningJob();
  observed.job.queue = "gpus";
  observed.job.spec = SpecOf(R"("suspend":true)");
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, 0);
  EXPECT_THAT(PlanAt(observed, seconds(30)).actions,
              ElementsAre(VariantWith<DeleteJob>(DeleteJob{"digits-worker-0", "job-0"})));
  observed.jobs.clear();
  observed.pods.clear();
  ExpectRest(PlanAt(observed, seconds(31)));
}

TEST(PlannerTest, GivesThePodsOfAPartlyScheduledJobBackAndTriesAgainLater) {
  Observed observed = NewJob(SpecOf(PolicyOf(R"("scheduleTimeoutSeconds":20,"maxRestarts":0)")));
  Carry(observed);
  observed.services = {{"digits-worker", "service"}};
  observed.jobs = {RunningChild()};
  observed.pods = {RunningPod(0), PendingPod(1)};
  EXPECT_EQ(Carry(observed, seconds(1)).look_again, seconds(19));
  Carry(observed, seconds(21));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, 0) << "waiting is no failure";
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "ScheduleTimeout");
  EXPECT_THAT(observed.job.status.Find(kScheduled)->message, HasSubstr("1 of 2"));

  observed.jobs.clear();
  observed.pods.clear();
  const Plan waiting = PlanAt(observed, seconds(22));
  EXPECT_THAT(waiting.actions, IsEmpty());
  ASSERT_TRUE(waiting.look_again);
  EXPECT_GE(*waiting.look_again, seconds(9));
  EXPECT_LE(*waiting.look_again, seconds(39));
  EXPECT_THAT(PlanAt(observed, seconds(21) + seconds(40)).actions,
              testing::Contains(VariantWith<CreateJob>(CreateJob{.role = "worker", .attempt = 1})));
}

TEST(PlannerTest, LetsAJobWithoutAnyPodScheduledWait) {
  Observed observed = NewJob(SpecOf(PolicyOf(R"("scheduleTimeoutSeconds":20)")));
  Carry(observed);
  observed.jobs = {RunningChild()};
  observed.pods = {PendingPod(0), PendingPod(1)};
  Carry(observed, seconds(1000));
  EXPECT_EQ(observed.job.status.attempt, 0);
}

TEST(PlannerTest, RefusesWhatItCannotDo) {
  struct Case {
    const char* reason;
    std::string spec;
    const char* names;
  };
  for (const auto& [reason, spec, names] :
       {Case{"InvalidSpec", R"({"replicas":2})", "trainer"},
        Case{"Unsupported", SpecOf(R"("network":{"rdma":true})"), "spec.network.rdma"},
        Case{"InvalidTemplate", SpecOf(R"("template":{"spec":{"restartPolicy":"Always"}})"),
             "template.spec.restartPolicy"}}) {
    Observed observed = NewJob(spec);
    EXPECT_THAT(Carry(observed).actions, IsEmpty());
    const Condition* failed = observed.job.status.Find(kFailed);
    ASSERT_NE(failed, nullptr);
    EXPECT_EQ(failed->reason, reason);
    EXPECT_THAT(failed->message, HasSubstr(names));
    ExpectRest(PlanAt(observed, seconds(1)));
  }
}

TEST(PlannerTest, SaysThatANameIsTakenAndAdoptsNothing) {
  Observed observed = NewJob();
  observed.blocked = Blocked{"NameTaken", "the Job team/digits-worker-0 belongs to somebody else"};
  const Plan plan = Carry(observed);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "NameTaken");
  EXPECT_TRUE(plan.look_again);
  EXPECT_THAT(PlanAt(observed, seconds(1)).events, IsEmpty());
  observed.blocked.reset();
  EXPECT_EQ(PlanAt(observed, seconds(2)).actions.size(), 3U);
}

TEST(PlannerTest, LeavesADeletedJobToTheGarbageCollector) {
  Observed observed = RunningJob();
  observed.job.deleting = true;
  ExpectRest(PlanAt(observed, seconds(10)));
}

AgentReport ReportOf(int64_t step, seconds at) {
  return {.pod_uid = RunningPod(0).uid,
          .progress = JobProgress{.step = step, .loss = "0.3", .last_updated = kCreated + at}};
}

TEST(PlannerTest, WritesProgressAloneOnlyEveryTenSeconds) {
  Observed observed = RunningJob();
  observed.report = ReportOf(10, seconds(20));
  Plan plan = Carry(observed, seconds(20));
  ASSERT_TRUE(plan.status);
  EXPECT_TRUE(plan.progress_only);
  EXPECT_EQ(plan.status->progress->step, 10);
  observed.last_progress_write = kCreated + seconds(20);

  observed.report = ReportOf(20, seconds(24));
  plan = Carry(observed, seconds(24));
  EXPECT_FALSE(plan.status);
  EXPECT_EQ(plan.look_again, seconds(6));
  EXPECT_TRUE(Carry(observed, seconds(30)).status);

  // Anything else takes it along at once.
  observed.report = ReportOf(30, seconds(31));
  observed.last_progress_write = kCreated + seconds(30);
  observed.jobs[0].ready = 2;
  plan = Carry(observed, seconds(31));
  ASSERT_TRUE(plan.status);
  EXPECT_FALSE(plan.progress_only);
  EXPECT_EQ(plan.status->progress->step, 30);
}

TEST(PlannerTest, AddsRestartsInPlaceToThoseOfEarlierAttempts) {
  Observed observed = RunningJob();
  observed.job.status.attempt = 1;
  observed.job.status.restarts = 2;
  observed.jobs = {RunningChild(1, 2)};
  observed.pods = {RunningPod(0, 1), RunningPod(1, 1)};
  observed.report = AgentReport{.pod_uid = RunningPod(0, 1).uid, .restarts = 3};
  Carry(observed, seconds(20));
  EXPECT_EQ(observed.job.status.restarts, 5);
  // An agent that came back has forgotten its own.
  observed.report->restarts = 0;
  ExpectRest(PlanAt(observed, seconds(40)));
  // And a pod of an earlier attempt has nothing to say.
  observed.report = ReportOf(7, seconds(50));
  ExpectRest(PlanAt(observed, seconds(60)));
}

TEST(PlannerTest, ShowsARestartInPlaceAsThePhase) {
  Observed observed = RunningJob();
  observed.report = AgentReport{.pod_uid = RunningPod(0).uid, .restarting = true};
  Carry(observed, seconds(20));
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
  observed.report->restarting = false;
  Carry(observed, seconds(21));
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
}

}  // namespace
}  // namespace lockstep::op
