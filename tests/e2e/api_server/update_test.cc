// Changes of a TrainingJob that is there: what may change while it runs is taken, the rest is refused by the
// transition rules of the CustomResourceDefinition.

#include <gmock/gmock.h>

#include "tests/e2e/api_server/api_server.h"

namespace lockstep::testing {
namespace {

using kube::Json;
using ::testing::HasSubstr;

class UpdateOnApiServerTest : public ApiServerTest {
 protected:
  void Make(const std::string& name, bool suspended) {
    Json job = Json::parse(R"({"spec":{"replicas":2,"processesPerReplica":1,"devices":{"type":"CPU"},
      "template":{"spec":{"nodeSelector":{"disk":"ssd"},"containers":[{"name":"lockstep","image":"mine:1"}]}},
      "trainer":{"model":{"layers":[{"type":"Dense","units":10}]}},
      "runPolicy":{"exitCodes":[{"codes":[3],"action":"Fail"}]}}})");
    job["metadata"]["name"] = name;
    job["spec"]["suspend"] = suspended;
    const auto made = client_->Create(kube::kTrainingJobs, space_, job);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }

  // Changes nothing for good. Empty: the server would take it.
  std::string Try(const std::string& name, const std::string& spec) {
    const Json patch = {{"spec", Json::parse(spec)}};
    const auto answer = client_->MergePatch(kube::kTrainingJobs, {space_, name}, patch, {.dry_run = true});
    return answer.ok() ? "" : answer.error().message;
  }
};

TEST_F(UpdateOnApiServerTest, WhatMayChangeIsTakenWhileTheJobRuns) {
  Make("runs", false);
  for (
      const char* change :
      {R"({"suspend":true})", R"({"runPolicy":{"maxRestarts":0}})",
       R"({"runPolicy":{"activeDeadlineSeconds":"1h"}})", R"({"runPolicy":{"scheduleTimeoutSeconds":60}})",
       R"({"runPolicy":{"ttlSecondsAfterFinished":0}})", R"({"runPolicy":{"cleanPodPolicy":"All"}})",
       // The same in other words.
       R"({"runPolicy":{"gang":"None","restartGracePeriodSeconds":0,"terminationGracePeriodSeconds":30}})"}) {
    EXPECT_EQ(Try("runs", change), "") << change;
  }
}

TEST_F(UpdateOnApiServerTest, WhatPodsAreMadeOfChangesOnlyWhileTheJobIsSuspended) {
  Make("runs", false);
  Make("held", true);
  struct Case {
    const char* field;
    const char* change;
  };
  for (const auto& [field, change] : {
           Case{"replicas", R"({"replicas":4})"},
           Case{"replicas", R"({"replicas":null})"},
           Case{"processesPerReplica", R"({"processesPerReplica":2})"},
           Case{"devices", R"({"devices":{"logPlacement":true}})"},
           Case{"template", R"({"template":null})"},
           // Also where the schema knows nothing of what is inside.
           Case{"template", R"({"template":{"spec":{"nodeSelector":{"disk":"hdd"}}}})"},
           Case{"template", R"({"template":{"spec":{"priorityClassName":"high"}}})"},
           Case{"trainer", R"({"trainer":{"epochs":9}})"},
           Case{"strategy", R"({"strategy":{"shard":"Optimizer"}})"},
           Case{"network", R"({"network":{"interface":"eth1"}})"},
           Case{"http", R"({"http":{"port":9090}})"},
           Case{"launcher", R"({"launcher":{"inject":true}})"},
           Case{"runPolicy.exitCodes", R"({"runPolicy":{"exitCodes":null}})"},
           Case{"runPolicy.exitCodes", R"({"runPolicy":{"exitCodes":[{"codes":[3],"action":"Restart"}]}})"},
           Case{"runPolicy.exitCodes", R"({"runPolicy":null})"},
           Case{"runPolicy.gang", R"({"runPolicy":{"gang":"Volcano"}})"},
           Case{"runPolicy.minReplicas", R"({"runPolicy":{"minReplicas":1}})"},
           Case{"runPolicy.progressDeadlineSeconds", R"({"runPolicy":{"progressDeadlineSeconds":60}})"},
           Case{"runPolicy.restartGracePeriodSeconds", R"({"runPolicy":{"restartGracePeriodSeconds":1}})"},
           Case{"runPolicy.terminationGracePeriodSeconds",
                R"({"runPolicy":{"terminationGracePeriodSeconds":"1m"}})"},
       }) {
    EXPECT_THAT(Try("runs", change),
                HasSubstr(std::string(field) + " changes only while the job is suspended"))
        << change;
    EXPECT_EQ(Try("held", change), "") << change;
    // With the suspension, and with the resumption.
    Json with = Json::parse(change);
    with["suspend"] = true;
    EXPECT_EQ(Try("runs", with.dump()), "") << with;
    with["suspend"] = false;
    EXPECT_EQ(Try("held", with.dump()), "") << with;
  }
}

TEST_F(UpdateOnApiServerTest, TheOtherRulesHoldForAChangeToo) {
  Make("held", true);
  EXPECT_THAT(Try("held", R"({"runPolicy":{"minReplicas":3}})"),
              HasSubstr("minReplicas is more than replicas"));
}

}  // namespace
}  // namespace lockstep::testing
