#include "launcher/operator/pod_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::op {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json Merged(const char* pod, const char* overlay) {
  Json result = Json::parse(pod);
  Conflicts conflicts;
  MergeTemplate(result, Json::parse(overlay), conflicts);
  EXPECT_THAT(conflicts, IsEmpty()) << overlay;
  return result;
}

TEST(PodTemplateTest, MergesAsAStrategicMergePatchDoes) {
  struct Case {
    const char* what;
    const char* pod;
    const char* overlay;
    const char* expected;
  };
  for (
      const auto& [what, pod, overlay, expected] : {
          Case{
              "a field of a container by its name",
              R"({"spec":{"containers":[{"name":"lockstep","image":"a","env":[{"name":"X","value":"1"}]}]}})",
              R"({"spec":{"containers":[{"name":"lockstep","image":"b"}]}})",
              R"({"spec":{"containers":[{"name":"lockstep","image":"b","env":[{"name":"X","value":"1"}]}]}})"},
          Case{"another container at the end", R"({"spec":{"containers":[{"name":"lockstep"}]}})",
               R"({"spec":{"containers":[{"name":"logs","image":"c"}]}})",
               R"({"spec":{"containers":[{"name":"lockstep"},{"name":"logs","image":"c"}]}})"},
          Case{"mounts by their path", R"({"volumeMounts":[{"name":"a","mountPath":"/tmp"}]})",
               R"({"volumeMounts":[{"name":"b","mountPath":"/tmp"},{"name":"c","mountPath":"/data"}]})",
               R"({"volumeMounts":[{"name":"b","mountPath":"/tmp"},{"name":"c","mountPath":"/data"}]})"},
          Case{"tolerations as a whole", R"({"spec":{"tolerations":[{"key":"a"}]}})",
               R"({"spec":{"tolerations":[{"key":"b"}]}})", R"({"spec":{"tolerations":[{"key":"b"}]}})"},
          Case{"null takes away", R"({"spec":{"securityContext":{"runAsUser":65532,"fsGroup":1}}})",
               R"({"spec":{"securityContext":{"runAsUser":null}}})",
               R"({"spec":{"securityContext":{"fsGroup":1}}})"},
          Case{"null in what is new is nothing", R"({"spec":{}})",
               R"({"spec":{"affinity":{"nodeAffinity":null}}})", R"({"spec":{"affinity":{}}})"},
      }) {
    EXPECT_EQ(Merged(pod, overlay), Json::parse(expected)) << what;
  }
}

TEST(PodTemplateTest, SaysWhatItCannotMerge) {
  Json pod = Json::parse(R"({"spec":{"containers":[{"name":"lockstep"}]}})");
  Conflicts conflicts;
  MergeTemplate(pod,
                Json::parse(R"({"spec":{"$patch":"replace","containers":[{"image":"x"}],"volumes":[5]}})"),
                conflicts);
  EXPECT_THAT(conflicts, ElementsAre(HasSubstr("spec.$patch"), HasSubstr("spec.containers[0]: has no name"),
                                     HasSubstr("spec.volumes[0]: has no name")));
}

TEST(PodTemplateTest, KeepsWhatTheAgentsRelyUpon) {
  struct Case {
    const char* overlay;
    const char* names;
  };
  for (
      const auto& [overlay, names] : {
          Case{R"({"spec":{"restartPolicy":"Always"}})", "spec.restartPolicy"},
          Case{R"({"spec":{"subdomain":"x"}})", "spec.subdomain"},
          Case{R"({"spec":{"containers":[{"name":"lockstep","command":["sh"]}]}})",
               "spec.containers[0].command"},
          Case{R"({"spec":{"containers":[{"name":"lockstep","env":[{"name":"LOCKSTEP_X","value":"1"}]}]}})",
               "LOCKSTEP_X"},
          Case{
              R"({"spec":{"containers":[{"name":"lockstep","volumeMounts":[{"name":"v","mountPath":"/etc/lockstep/token"}]}]}})",
              "/etc/lockstep/token"},
          Case{R"({"spec":{"volumes":[{"name":"lockstep-token"}]}})", "lockstep-token"},
          Case{R"({"metadata":{"labels":{"lockstep.dev/attempt":"7"}}})", "lockstep.dev/attempt"},
      }) {
    EXPECT_THAT(CheckTemplate(Json::parse(overlay)), ElementsAre(HasSubstr(names)));
  }
  EXPECT_THAT(CheckTemplate(Json::parse(
                  R"({"metadata":{"labels":{"team":"a"}},"spec":{"nodeSelector":{"gpu":"h100"},"containers":[
                      {"name":"lockstep","image":"x","resources":{"limits":{"cpu":"4"}},
                       "env":[{"name":"LOCKSTEP_LOG_FORMAT","value":"json"}]},
                      {"name":"other","command":["sh"]}]}})")),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep::op
