// What the operator makes of spec.roles.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/operator/gang.h"
#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using Json = nlohmann::json;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::VariantWith;

std::string RolesSpec(const std::string& roles, const std::string& more = "") {
  return R"({"roles":[)" + roles + R"(],"program":{"command":["train"]})" + (more.empty() ? "" : ",") + more +
         "}";
}
constexpr char kRoles[] =
    R"({"name":"ps","replicas":1},{"name":"worker","replicas":2,"processesPerReplica":1})";

// One server and two workers, which run.
Observed ServedJob(const std::string& more = "") {
  Observed observed = NewJob(RolesSpec(kRoles, more));
  Carry(observed);
  observed.services = {{"digits-ps", "service-0"}, {"digits-worker", "service-1"}};
  observed.jobs = {RunningChild(0, 0, "ps"), RunningChild()};
  observed.jobs[0].active = observed.jobs[0].ready = 1;
  observed.jobs[1].active = observed.jobs[1].ready = 2;
  observed.pods = {RunningPod(0, 0, "ps"), RunningPod(0), RunningPod(1)};
  Carry(observed);
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  return observed;
}

void Ended(ChildPod& pod, seconds at) {
  pod.phase = PodPhase::kSucceeded;
  pod.ended_at = kCreated + at;
}

TEST(RolesTest, EachRoleHasItsServiceAndItsJob) {
  const Plan plan = PlanAt(NewJob(RolesSpec(kRoles)));
  EXPECT_THAT(plan.actions, ElementsAre(VariantWith<CreateSecret>(CreateSecret{}),
                                        VariantWith<CreateService>(CreateService{"ps"}),
                                        VariantWith<CreateJob>(CreateJob{.role = "ps"}),
                                        VariantWith<CreateService>(CreateService{"worker"}),
                                        VariantWith<CreateJob>(CreateJob{.role = "worker"})));
  EXPECT_EQ(plan.status->replicas.desired, 3);
}

TEST(RolesTest, StatusAddsTheRolesUp) {
  const Observed observed = ServedJob();
  EXPECT_EQ(observed.job.status.replicas.active, 3);
  EXPECT_EQ(observed.job.status.replicas.ready, 3);
  EXPECT_EQ(observed.job.status.Find(kRunning)->message, "all replicas run");
}

TEST(RolesTest, WaitsForTheFirstReplicasOfAllRoles) {
  Observed observed = NewJob(RolesSpec(kRoles));
  Carry(observed);
  observed.jobs = {RunningChild(0, 0, "ps"), RunningChild()};
  // Both are number 0 of their roles.
  observed.pods = {RunningPod(0, 0, "ps"), RunningPod(0)};
  Carry(observed);
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
  EXPECT_THAT(observed.job.status.Find(kScheduled)->message, HasSubstr("2 of 3 pods"));
}

TEST(RolesTest, ALostWorkerOfServersIsItsJobsToReplaceHoweverOften) {
  Observed observed = ServedJob();
  observed.pods[2] = PendingPod(1);
  observed.jobs[1].failed = 7;
  const Plan plan = Carry(observed, seconds(30));
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_EQ(observed.job.status.attempt, 0);
  EXPECT_EQ(observed.job.status.phase, Phase::kRunning);
  EXPECT_EQ(observed.job.status.Find(kRunning)->message, "2 of 3 replicas run");
  observed.pods[2] = RunningPod(1);
  Carry(observed, seconds(60));
  EXPECT_EQ(observed.job.status.Find(kRunning)->message, "all replicas run");
}

TEST(RolesTest, WithoutTheStoreItsReplicasWait) {
  Observed observed = ServedJob();
  observed.pods[0] = PendingPod(0, 0);
  observed.pods[0].role = "ps";
  observed.jobs[0].failed = 1;
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.phase, Phase::kRestarting);
  EXPECT_EQ(observed.job.status.attempt, 0);
}

TEST(RolesTest, WithoutServersLostPodsMakeANewAttempt) {
  Observed observed = NewJob(RolesSpec(R"({"name":"worker","replicas":2},{"name":"evaluator"})"));
  Carry(observed);
  observed.services = {{"digits-worker", "service-0"}, {"digits-evaluator", "service-1"}};
  observed.jobs = {RunningChild(), RunningChild(0, 0, "evaluator")};
  observed.pods = {RunningPod(0), RunningPod(1), RunningPod(0, 0, "evaluator")};
  Carry(observed);
  observed.jobs[1].failed = 2;
  Carry(observed, seconds(30));
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, 1);
}

TEST(RolesTest, IsDoneWhenItsWorkersAreAndStopsWhatIsLeft) {
  Observed observed = ServedJob();
  observed.jobs[1].complete = true;
  Ended(observed.pods[1], seconds(100));
  Ended(observed.pods[2], seconds(105));
  // The server's agent is about to end by itself.
  Plan plan = Carry(observed, seconds(106));
  EXPECT_FALSE(observed.job.status.finished());
  EXPECT_EQ(plan.look_again, seconds(9));
  plan = Carry(observed, seconds(115));
  EXPECT_EQ(observed.job.status.phase, Phase::kSucceeded);
  plan = PlanAt(observed, seconds(116));
  EXPECT_THAT(plan.actions, ElementsAre(VariantWith<SuspendJob>(SuspendJob{"digits-ps-0", "job-0", true})));
}

TEST(RolesTest, IsDoneAtOnceWhenAllAre) {
  Observed observed = ServedJob();
  for (ChildJob& child : observed.jobs) child.complete = true;
  for (ChildPod& pod : observed.pods) Ended(pod, seconds(100));
  Carry(observed, seconds(101));
  EXPECT_EQ(observed.job.status.phase, Phase::kSucceeded);
}

TEST(RolesTest, AServerThatEndsIsNotTheEnd) {
  Observed observed = ServedJob();
  observed.jobs[0].complete = true;
  Ended(observed.pods[0], seconds(100));
  Carry(observed, seconds(300));
  EXPECT_FALSE(observed.job.status.finished());
}

TEST(RolesTest, AFailureIsToldByTheReplicasNumber) {
  Observed observed = ServedJob();
  observed.jobs[1].failing = true;
  observed.jobs[1].failure_reason = "PodFailurePolicy";
  observed.jobs[1].failed_at = kCreated + seconds(100);
  observed.pods[1].phase = PodPhase::kFailed;
  observed.pods[1].exit_code = 3;
  Carry(observed, seconds(110));
  EXPECT_EQ(observed.job.status.phase, Phase::kFailed);
  EXPECT_EQ(observed.job.status.last_failure->replica, 1);
  EXPECT_EQ(observed.job.status.last_failure->role, "worker");
  EXPECT_EQ(ReadStatus(StatusJson(observed.job.status)).last_failure->role, "worker");
}

Json JobOf(const std::string& spec, const std::string& role) {
  const Observed observed = NewJob(spec);
  const Manifest manifest = ReadJobManifest(observed.job, {});
  EXPECT_TRUE(manifest.job) << manifest.invalid;
  return JobObject(observed.job, manifest, {.role = role, .attempt = 2}, {});
}

const Json& AgentOf(const Json& job) { return job["spec"]["template"]["spec"]["containers"][0]; }

TEST(RolesTest, AllAgentsMeetAtTheFirstRolesFirst) {
  const Json server = JobOf(RolesSpec(kRoles), "ps");
  const Json worker = JobOf(RolesSpec(kRoles), "worker");
  EXPECT_EQ(worker["metadata"]["name"], "digits-worker-2");
  EXPECT_EQ(worker["spec"]["completions"], 2);
  EXPECT_EQ(worker["spec"]["template"]["spec"]["subdomain"], "digits-worker");
  for (const Json* job : {&server, &worker}) {
    EXPECT_THAT(AgentOf(*job)["command"], Contains("digits-ps-2-0.digits-ps.team.svc.cluster.local.:29400"));
    EXPECT_THAT(AgentOf(*job)["command"], Contains("--token-file"));
  }
  EXPECT_THAT(AgentOf(worker)["command"], Contains("worker"));
  EXPECT_THAT(AgentOf(worker)["command"], Contains("digits-worker.team.svc.cluster.local"));
  EXPECT_EQ(ReadChildPod(server["spec"]["template"]).role, "ps");
}

TEST(RolesTest, AJobOfOneRoleNamesNone) {
  EXPECT_THAT(AgentOf(JobOf(SpecOf(), "worker"))["command"], Not(Contains("--role")));
  EXPECT_THAT(AgentOf(JobOf(SpecOf(), "worker"))["command"], Not(Contains("--domain")));
}

// The labels and the resource as in cloud.google.com/kubernetes-engine/docs/how-to/tpus: a slice of eight
// chips on two machines.
TEST(RolesTest, TpusAreAskedForAsGkeDocumentsIt) {
  const std::string spec =
      R"({"replicas":2,"devices":{"type":"TPU","accelerator":"tpu-v5-lite-podslice","topology":"2x4"},)"
      R"("program":{"framework":"JAX","command":["python3","train.py"]}})";
  const Json job = JobOf(spec, "worker");
  const Json& pod = job["spec"]["template"]["spec"];
  EXPECT_EQ(pod["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"], "tpu-v5-lite-podslice");
  EXPECT_EQ(pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"], "2x4");
  EXPECT_EQ(AgentOf(job)["resources"]["limits"]["google.com/tpu"], 4);
  EXPECT_EQ(AgentOf(job)["resources"]["requests"]["google.com/tpu"], 4);
  EXPECT_THAT(AgentOf(job)["command"], Contains("--domain"));
}

TEST(RolesTest, ChipsThatDoNotComeOutEvenAreRefused) {
  const Observed observed =
      NewJob(R"({"replicas":3,"devices":{"type":"TPU","accelerator":"tpu-v4-podslice","topology":"2x2x2"},)"
             R"("program":{"command":["train"]}})");
  const Manifest manifest = ReadJobManifest(observed.job, {});
  EXPECT_FALSE(manifest.job);
  EXPECT_THAT(manifest.invalid, HasSubstr("spec.devices.topology: 2x2x2"));
}

}  // namespace
}  // namespace lockstep::op
