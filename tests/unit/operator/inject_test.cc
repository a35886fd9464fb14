#include "launcher/operator/inject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/spec/manifest.h"
#include "tests/unit/operator/cluster_builder.h"

namespace lockstep::op {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr char kInject[] = R"("launcher":{"inject":true})";

std::string ProgramOf(const std::string& more, const std::string& pod = "{}") {
  return R"({"program":{"command":["python3","train.py"]},"template":{"spec":)" + pod + "}" +
         (more.empty() ? "" : ",") + more + "}";
}

Manifest Read(const std::string& spec, const ChildOptions& options = {}) {
  return ReadJobManifest(NewJob(spec).job, options);
}

Json PodOf(const std::string& spec, const ChildOptions& options = {}) {
  const Observed observed = NewJob(spec);
  const Manifest manifest = ReadJobManifest(observed.job, options);
  EXPECT_TRUE(manifest.job) << manifest.invalid;
  return JobObject(observed.job, manifest, {.role = "worker"}, options)["spec"]["template"]["spec"];
}

const Json& Named(const Json& list, const std::string& name) {
  static const Json none;
  for (const Json& item : list) {
    if (item["name"] == name) return item;
  }
  ADD_FAILURE() << "no " << name << " in " << list;
  return none;
}

TEST(InjectTest, CopiesTheLauncherOfTheJobsImageIntoTheUsersContainer) {
  const Json pod =
      PodOf(ProgramOf(kInject, R"({"containers":[{"name":"lockstep","image":"user/pytorch:1"}]})"),
            {.image = "team/lockstep:2", .pull_policy = "Always"});
  const Json& init = Named(pod["initContainers"], "lockstep-inject");
  EXPECT_EQ(init["image"], "team/lockstep:2");
  EXPECT_EQ(init["imagePullPolicy"], "Always");
  const Json& target = init["volumeMounts"][0];
  EXPECT_EQ(init["command"], Json({"lockstep", "inject", target["mountPath"]}));
  EXPECT_NE(target["mountPath"], "/opt/lockstep") << "there is what is copied";
  EXPECT_TRUE(Named(pod["volumes"], target["name"]).contains("emptyDir"));

  const Json& agent = Named(pod["containers"], "lockstep");
  EXPECT_EQ(agent["image"], "user/pytorch:1");
  EXPECT_EQ(agent["command"][0], "/opt/lockstep/bin/lockstep");
  EXPECT_EQ(agent["command"][1], "agent");
  const Json& mount = Named(agent["volumeMounts"], target["name"]);
  EXPECT_EQ(mount["mountPath"], "/opt/lockstep");
  EXPECT_EQ(mount["readOnly"], true);
  EXPECT_EQ(Named(agent["env"], "HOME")["value"], "/tmp");
}

// https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
TEST(InjectTest, TheInitContainerMeetsTheRestrictedStandardAndKeepsAPodGuaranteed) {
  const Json pod = PodOf(ProgramOf(kInject));
  const Json& init = Named(pod["initContainers"], "lockstep-inject");
  EXPECT_EQ(init["securityContext"], Named(pod["containers"], "lockstep")["securityContext"]);
  EXPECT_EQ(init["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(init["resources"]["requests"], init["resources"]["limits"]);
  EXPECT_TRUE(init["resources"]["limits"].contains("cpu"));
  EXPECT_TRUE(init["resources"]["limits"].contains("memory"));
}

TEST(InjectTest, ChangesNothingUnlessAskedTo) {
  const Json pod = PodOf(ProgramOf(""));
  EXPECT_FALSE(pod.contains("initContainers"));
  EXPECT_EQ(Named(pod["containers"], "lockstep")["command"][0], "lockstep");
}

TEST(InjectTest, ComesBeforeTheUsersInitContainersAndLetsTheTemplateHaveItsWay) {
  const Json pod = PodOf(ProgramOf(kInject, R"({"initContainers":[{"name":"download","image":"a"}],
      "containers":[{"name":"lockstep","env":[{"name":"HOME","value":"/data"}]}]})"));
  ASSERT_EQ(pod["initContainers"].size(), 2U);
  EXPECT_EQ(pod["initContainers"][0]["name"], "lockstep-inject");
  EXPECT_EQ(pod["initContainers"][1]["name"], "download");
  EXPECT_EQ(Named(Named(pod["containers"], "lockstep")["env"], "HOME")["value"], "/data");
}

TEST(InjectTest, WhatIsTheOperatorsCannotBeChanged) {
  const Manifest init =
      Read(ProgramOf(kInject, R"({"initContainers":[{"name":"lockstep-inject","image":"a"}]})"));
  EXPECT_EQ(init.reason, "InvalidTemplate");
  EXPECT_THAT(init.invalid, HasSubstr("spec.initContainers: lockstep-inject is the operator's"));
  const Manifest mount = Read(ProgramOf(kInject, R"({"volumes":[{"name":"mine","emptyDir":{}}],
      "containers":[{"name":"lockstep","volumeMounts":[{"name":"mine","mountPath":"/opt/lockstep"}]}]})"));
  EXPECT_THAT(mount.invalid, HasSubstr("/opt/lockstep is the operator's"));
}

TEST(InjectTest, TheAgentIsNotAskedForIt) {
  const Observed observed = NewJob(ProgramOf(kInject));
  const Manifest manifest = ReadJobManifest(observed.job, {});
  ASSERT_TRUE(manifest.job) << manifest.invalid;
  EXPECT_TRUE(manifest.job->inject_launcher);
  const spec::Manifests read = spec::ReadManifests(AgentManifest(observed.job, *manifest.job, 0, 0), "m");
  ASSERT_EQ(read.jobs.size(), 1U);
  EXPECT_FALSE(read.jobs[0].inject_launcher);
  // But its pods are others than without.
  EXPECT_NE(manifest.pods, Read(ProgramOf("")).pods);
}

TEST(InjectTest, TheReasonOfAFailedCopyIsTold) {
  Observed observed = NewJob(ProgramOf(std::string(kInject) + R"(,"runPolicy":{"maxRestarts":0})"));
  observed.jobs = {RunningChild()};
  observed.jobs[0].failing = true;
  ChildPod pod = RunningPod(0);
  pod.phase = PodPhase::kFailed;
  pod.exit_code = 1;
  pod.exit_reason = "Error";
  pod.exit_message = "lockstep-inject: lockstep: copy the launcher: No space left on device";
  observed.pods = {pod};
  const Plan plan = PlanAt(observed);
  ASSERT_TRUE(plan.status && plan.status->last_failure);
  EXPECT_THAT(plan.status->last_failure->message, HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace lockstep::op
