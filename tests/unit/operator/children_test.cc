#include "launcher/operator/children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/spec/manifest.h"
#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using Json = nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Json JobOf(const std::string& spec, const CreateJob& action = {.role = "worker"},
           const ChildOptions& options = {}) {
  const Observed observed = NewJob(spec);
  const Manifest manifest = ReadJobManifest(observed.job, options);
  EXPECT_TRUE(manifest.job) << manifest.invalid;
  return JobObject(observed.job, manifest, action, options);
}

const Json& AgentOf(const Json& job) { return job["spec"]["template"]["spec"]["containers"][0]; }

TEST(ChildrenTest, NamesEveryObjectAfterItsAttemptAndOwner) {
  const Json job = JobOf(SpecOf(), {.role = "worker", .attempt = 2, .restarts = 1});
  EXPECT_EQ(job["metadata"]["name"], "digits-worker-2");
  EXPECT_EQ(job["metadata"]["namespace"], "team");
  EXPECT_EQ(job["metadata"]["labels"]["lockstep.dev/job-uid"], "3f2c");
  EXPECT_EQ(job["metadata"]["annotations"]["lockstep.dev/restarts"], "1");
  EXPECT_EQ(OwnerUid(job, "TrainingJob"), "3f2c");
  EXPECT_EQ(job["spec"]["template"]["metadata"]["labels"]["lockstep.dev/attempt"], "2");
  EXPECT_EQ(job["spec"]["completions"], 2);
  EXPECT_EQ(job["spec"]["parallelism"], 2);
  EXPECT_EQ(job["spec"]["suspend"], false);
  // And back, as the watch brings it.
  const ChildJob child = ReadChildJob(job);
  EXPECT_EQ(child.attempt, 2);
  EXPECT_EQ(child.restarts_before, 1);
  EXPECT_EQ(child.role, "worker");
}

TEST(ChildrenTest, EveryDerivedNameFitsALabelOfDns) {
  const std::string longest(40, 'j');
  EXPECT_LE(ChildJobName(longest, "evaluator", 999).size() + std::string("-9999").size(), 63U);
  EXPECT_LE(ServiceName(longest, "evaluator").size(), 63U);
}

TEST(ChildrenTest, TellsTheAgentWhereReplica0Is) {
  const Json job = JobOf(SpecOf(), {.role = "worker", .attempt = 1});
  EXPECT_THAT(AgentOf(job)["command"],
              Contains("digits-worker-1-0.digits-worker.team.svc.cluster.local.:29400"));
  EXPECT_EQ(job["spec"]["template"]["spec"]["subdomain"], "digits-worker");
  const Json alone = JobOf(SpecOf("", 1));
  EXPECT_THAT(AgentOf(alone)["command"], Not(Contains("--rendezvous")));
  EXPECT_FALSE(alone["spec"]["template"]["spec"].contains("subdomain"));
  for (const Json& volume : alone["spec"]["template"]["spec"]["volumes"])
    EXPECT_FALSE(volume.contains("secret"));
}

// https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
TEST(ChildrenTest, MeetsTheRestrictedPodSecurityStandard) {
  const Json job = JobOf(SpecOf());
  const Json& pod = job["spec"]["template"]["spec"];
  EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
  EXPECT_GT(pod["securityContext"]["runAsUser"], 0);
  EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
  EXPECT_EQ(pod["automountServiceAccountToken"], false);
  const Json& security = AgentOf(job)["securityContext"];
  EXPECT_EQ(security["allowPrivilegeEscalation"], false);
  EXPECT_EQ(security["readOnlyRootFilesystem"], true);
  EXPECT_EQ(security["capabilities"]["drop"], Json::array({"ALL"}));
  for (const Json& volume : pod["volumes"]) {
    EXPECT_TRUE(volume.contains("emptyDir") || volume.contains("downwardAPI") || volume.contains("secret"))
        << volume;
  }
}

TEST(ChildrenTest, GivesTheAgentAManifestThatItCanRead) {
  const Observed observed =
      NewJob(SpecOf(PolicyOf(R"("maxRestarts":5,"activeDeadlineSeconds":"1h","ttlSecondsAfterFinished":9)") +
                    R"(,"template":{"spec":{"nodeSelector":{"a":"b"}}})"));
  const Manifest manifest = ReadJobManifest(observed.job, {});
  ASSERT_TRUE(manifest.job) << manifest.invalid;
  const std::string text = AgentManifest(observed.job, *manifest.job, 3, 2);
  const spec::Manifests read = spec::ReadManifests(text, "manifest.json");
  ASSERT_TRUE(read.errors.empty()) << read.errors.front().ToString();
  const spec::TrainingJob& job = read.jobs.at(0);
  EXPECT_EQ(job.name, "digits");
  EXPECT_EQ(job.namespace_name, "team");
  EXPECT_EQ(job.run_policy.max_restarts, 3);
  EXPECT_FALSE(job.run_policy.active_deadline);
  EXPECT_EQ(job.http.address, "0.0.0.0");
  EXPECT_EQ(job.http.port, 8080);
  EXPECT_EQ(job.roles.at(0).pod_template_json, "");
  EXPECT_NE(text, AgentManifest(observed.job, *manifest.job, 4, 2)) << "agents of two attempts never agree";
}

TEST(ChildrenTest, LaysTheTemplateOverThePod) {
  const Json job = JobOf(SpecOf(
      R"("template":{"metadata":{"labels":{"team":"vision"}},"spec":{"nodeSelector":{"gpu":"h100"},
         "containers":[{"name":"lockstep","image":"registry/mine:1","resources":{"limits":{"cpu":"4"}}}]}})"));
  EXPECT_EQ(AgentOf(job)["image"], "registry/mine:1");
  EXPECT_EQ(AgentOf(job)["resources"]["limits"]["cpu"], "4");
  EXPECT_EQ(AgentOf(job)["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(job["spec"]["template"]["metadata"]["labels"]["team"], "vision");
  EXPECT_EQ(job["spec"]["template"]["metadata"]["labels"]["lockstep.dev/role"], "worker");
}

TEST(ChildrenTest, AsksForGpusWhereTheTemplateDoesNot) {
  const auto spec = [](const std::string& more) {
    return R"({"processesPerReplica":4,"devices":{"type":"GPU"},"program":{"command":["python3","train.py"]})" +
           more + "}";
  };
  EXPECT_EQ(AgentOf(JobOf(spec("")))["resources"]["limits"]["nvidia.com/gpu"], 4);
  const Json mig = AgentOf(JobOf(spec(
      R"(,"template":{"spec":{"containers":[{"name":"lockstep","resources":{"limits":{"nvidia.com/mig-1g.5gb":4}}}]}})")));
  EXPECT_FALSE(mig["resources"]["limits"].contains("nvidia.com/gpu"));
  EXPECT_FALSE(AgentOf(JobOf(SpecOf())).contains("resources"));
}

TEST(ChildrenTest, CopiesKueuesLabels) {
  Observed observed = NewJob();
  observed.job.queue = "gpus";
  observed.job.priority_class = "high";
  const Manifest manifest = ReadJobManifest(observed.job, {});
  const Json job = JobObject(observed.job, manifest, {.role = "worker", .suspended = true}, {});
  EXPECT_EQ(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "gpus");
  EXPECT_EQ(job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"], "high");
  EXPECT_EQ(job["spec"]["suspend"], true);
}

TEST(ChildrenTest, PutsTheTokenIntoAnImmutableSecretOfThisVeryJob) {
  const Json secret = TokenSecret(NewJob().job, std::string(64, 'a'));
  EXPECT_EQ(secret["metadata"]["name"], "digits-token-3f2c");
  EXPECT_EQ(secret["immutable"], true);
  EXPECT_EQ(secret["stringData"]["token"], std::string(64, 'a') + "\n");
  const Json service = HeadlessService(NewJob().job, "worker");
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
}

}  // namespace
}  // namespace lockstep::op
