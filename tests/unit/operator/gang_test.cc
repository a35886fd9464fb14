#include "launcher/operator/gang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::VariantWith;

struct Made {
  Observed observed;
  json group;
  json pod;
};

Made MakeWith(const std::string& gang, const std::string& more = "") {
  Made made{.observed = NewJob(SpecOf(PolicyOf(R"("gang":")" + gang + "\"") + more, 4))};
  const Manifest manifest = ReadJobManifest(made.observed.job, {});
  EXPECT_TRUE(manifest.job) << manifest.invalid;
  made.group = GangObject(made.observed.job, *manifest.job, 2);
  made.pod = JobObject(made.observed.job, manifest, {.role = "worker", .attempt = 2}, {})["spec"]["template"];
  return made;
}

TEST(GangTest, OfSchedulerPluginsIsKnownByALabel) {
  const auto [observed, group, pod] = MakeWith("Coscheduling");
  EXPECT_EQ(group["apiVersion"], "scheduling.x-k8s.io/v1alpha1");
  EXPECT_EQ(group["metadata"]["name"], "digits-2");
  EXPECT_EQ(group["metadata"]["ownerReferences"][0]["uid"], "3f2c");
  EXPECT_EQ(group["spec"], json({{"minMember", 4}}));
  EXPECT_EQ(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "digits-2");
  EXPECT_FALSE(pod["spec"].contains("schedulerName")) << "which scheduler has the plugin, the template says";
}

TEST(GangTest, OfVolcanoIsKnownByAnAnnotationAndTakesItsScheduler) {
  const auto [observed, group, pod] = MakeWith("Volcano");
  EXPECT_EQ(group["apiVersion"], "scheduling.volcano.sh/v1beta1");
  EXPECT_EQ(group["spec"], json({{"minMember", 4}}));
  EXPECT_EQ(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "digits-2");
  EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
  const Made other = MakeWith("Volcano", R"(,"template":{"spec":{"schedulerName":"volcano-2"}})");
  EXPECT_EQ(other.pod["spec"]["schedulerName"], "volcano-2");
}

TEST(GangTest, OfKubernetesItselfIsAFieldOfThePod) {
  const auto [observed, group, pod] = MakeWith("Workload");
  EXPECT_EQ(group["apiVersion"], "scheduling.k8s.io/v1alpha2");
  EXPECT_EQ(group["spec"]["schedulingPolicy"]["gang"]["minCount"], 4);
  EXPECT_EQ(pod["spec"]["schedulingGroup"]["podGroupName"], "digits-2");
}

TEST(GangTest, IsNotTheAgentsBusiness) {
  const Observed observed = NewJob(SpecOf(PolicyOf(R"("gang":"Volcano")")));
  const Manifest manifest = ReadJobManifest(observed.job, {});
  EXPECT_EQ(AgentManifest(observed.job, *manifest.job, 0, 0).find("Volcano"), std::string::npos);
}

TEST(GangTest, OfOneReplicaIsNone) {
  const Observed observed = NewJob(SpecOf(PolicyOf(R"("gang":"Volcano")"), 1));
  EXPECT_THAT(PlanAt(observed).actions, ElementsAre(VariantWith<CreateJob>(CreateJob{.role = "worker"})));
}

TEST(GangTest, IsMadeBeforeTheJobAndThatOfTheAttemptBeforeGoes) {
  Observed observed = NewJob(SpecOf(PolicyOf(R"("gang":"Coscheduling")")));
  EXPECT_THAT(PlanAt(observed).actions,
              ElementsAre(VariantWith<CreateSecret>(CreateSecret{}), VariantWith<CreateGang>(CreateGang{0}),
                          VariantWith<CreateService>(CreateService{"worker"}),
                          VariantWith<CreateJob>(CreateJob{.role = "worker"})));
  observed = RunningJob(SpecOf(PolicyOf(R"("gang":"Coscheduling")")));
  observed.jobs[0].failed = 2;
  Carry(observed, seconds(30));
  observed.jobs.clear();
  observed.pods.clear();
  EXPECT_THAT(PlanAt(observed, seconds(31)).actions,
              ElementsAre(VariantWith<CreateSecret>(CreateSecret{}), VariantWith<DeleteGang>(DeleteGang{0}),
                          VariantWith<CreateGang>(CreateGang{1}),
                          VariantWith<CreateJob>(CreateJob{.role = "worker", .attempt = 1, .restarts = 1})));
}

TEST(GangTest, AClusterWithoutItIsSaidAndLookedAtAgain) {
  Observed observed = NewJob(SpecOf(PolicyOf(R"("gang":"Workload")")));
  Carry(observed);
  observed.blocked = Blocked{"GangUnavailable", "the cluster has no PodGroups of scheduling.k8s.io/v1alpha2"};
  const Plan plan = Carry(observed, seconds(1));
  EXPECT_EQ(observed.job.status.phase, Phase::kPending);
  EXPECT_EQ(observed.job.status.Find(kScheduled)->reason, "GangUnavailable");
  EXPECT_EQ(plan.look_again, seconds(30));
  EXPECT_FALSE(PlanAt(observed, seconds(2)).status) << "no write at rest";
  observed.blocked.reset();
  EXPECT_EQ(PlanAt(observed, seconds(31)).actions.size(), 4U);
}

}  // namespace
}  // namespace lockstep::op
