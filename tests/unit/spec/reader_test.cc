#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using ::testing::ElementsAre;
using testing::ErrorsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobOf;
using ::testing::SizeIs;
using testing::WithSpec;
using testing::WithTrainer;

TEST(ReaderTest, SaysFileLineColumnPathAndWhatWouldBeRight) {
  const auto manifests = ReadManifests(WithTrainer("  strategy:\n    crossDeviceOps: NCLC"), "job.yaml");
  ASSERT_THAT(manifests.errors, SizeIs(1));
  EXPECT_EQ(
      manifests.errors[0].ToString(),
      "job.yaml:6:21: spec.strategy.crossDeviceOps: \"NCLC\" is not one of Auto, NCCL, HierarchicalCopy, "
      "ReductionToOneDevice, SharedMemory, Gloo; did you mean NCCL?");
  EXPECT_THAT(manifests.jobs, IsEmpty());
}

TEST(ReaderTest, KeepsTheJobsWithoutErrors) {
  const std::string text =
      WithTrainer("") + "---\n" + WithTrainer("  replicas: 0") + "---\n" + WithTrainer("");
  const auto manifests = ReadManifests(text, "f");
  EXPECT_THAT(manifests.jobs, SizeIs(2));
  EXPECT_THAT(manifests.errors, SizeIs(1));
}

TEST(ReaderTest, AJobWithADuplicateKeyIsNoJob) {
  const auto manifests = ReadManifests(WithTrainer("  replicas: 1\n  replicas: 1"), "f");
  EXPECT_THAT(manifests.jobs, IsEmpty());
  EXPECT_THAT(manifests.errors, SizeIs(1));
}

TEST(ReaderTest, SkipsOtherKindsWithANotice) {
  const auto manifests = ReadManifests(
      "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\napiVersion: kubeflow.org/v1\nkind: "
      "PyTorchJob\n---\n"
      "apiVersion: sagemaker.services.k8s.aws/v1\nkind: TrainingJob\n",
      "f");
  EXPECT_THAT(manifests.errors, IsEmpty());
  EXPECT_THAT(manifests.notices, ElementsAre("f:1: a Service, skipped", "f:5: a PyTorchJob, skipped",
                                             "f:8: a TrainingJob, skipped"));
}

TEST(ReaderTest, AnotherKindOfOurGroupIsAnError) {
  EXPECT_THAT(ErrorsOf("apiVersion: lockstep.dev/v1alpha1\nkind: Queue\n"), ::testing::Not(IsEmpty()));
  EXPECT_THAT(ErrorsOf("apiVersion: lockstep.def/v1alpha1\nkind: TrainingJob\n"), ::testing::Not(IsEmpty()));
}

TEST(ReaderTest, ColumnsCountCharactersNotBytes) {
  EXPECT_THAT(
      ErrorsOf(WithTrainer("  http: {\"é\": 1, port: -1}")),
      ElementsAre(HasSubstr("5:10: spec.http[\"é\"]: is not a field"), HasSubstr("5:24: spec.http.port")));
}

TEST(ReaderTest, EscapesWhatWouldReachTheTerminal) {
  const auto errors = ErrorsOf(WithTrainer("  \"\\e[31mred\": 1"));
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].find('\x1b'), std::string::npos);
  EXPECT_THAT(errors[0], HasSubstr("\\x1b[31mred"));
}

TEST(ReaderTest, AnUnreadableFieldSpoilsNoOtherRule) {
  // Were the type taken for its default, beta1 would be called out of place, and the replicas too many for
  // Mirrored.
  EXPECT_THAT(
      ErrorsOf(WithSpec(
          "  replicas: 2\n  strategy: {type: Miror}\n  trainer:\n    optimizer: {type: Adm, beta1: 0.5}\n"
          "    model: {layers: [{type: Dense, units: 10}]}\n")),
      ElementsAre(HasSubstr("spec.strategy.type"), HasSubstr("spec.trainer.optimizer.type")));
}

TEST(ReaderTest, AManifestMayWriteEveryDocumentedDefault) {
  EXPECT_EQ(
      JobOf(WithTrainer("  devices: {memory: {policy: Growth, enforce: None}}\n  strategy: {shard: None}")),
      JobOf(WithTrainer("")));
}

TEST(ReaderTest, SaysAtMostAHundredErrorsAndHowManyMore) {
  std::string spec;
  for (int i = 0; i < 900; ++i) spec += "  unknown" + std::to_string(i) + ": 1\n";
  const auto errors = ErrorsOf(WithTrainer(spec));
  EXPECT_LE(errors.size(), static_cast<size_t>(kMaxDiagnostics) + 2);
  EXPECT_GE(errors.size(), static_cast<size_t>(kMaxDiagnostics));
}

TEST(ReaderTest, HoldsItsLimits) {
  const std::string brackets(kMaxDepth + 1, '[');
  EXPECT_THAT(ErrorsOf(brackets), ElementsAre(HasSubstr("nested deeper than 64")));
  // Exactly at the limit: refused for what it is, not for its depth.
  const std::string at_limit = std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']');
  EXPECT_THAT(ErrorsOf(at_limit), ElementsAre(HasSubstr("is no mapping")));

  std::string list;
  // The list and its document are values, too.
  for (int i = 0; i < kMaxNodes - 2; ++i) list += "- a\n";
  EXPECT_THAT(ErrorsOf(list), ElementsAre(HasSubstr("is no mapping")));
  EXPECT_THAT(ErrorsOf(list + "- a\n"), ElementsAre(HasSubstr("more than 100000 values")));

  const std::string padding(kMaxManifestBytes - WithTrainer("").size() - 2, 'x');
  EXPECT_THAT(ErrorsOf(WithTrainer("") + "# " + padding), IsEmpty());
  EXPECT_THAT(ErrorsOf(WithTrainer("") + "# " + padding + "x"), ElementsAre(HasSubstr("at most 1048576")));
}

TEST(ReaderTest, LimitsCountAllDocumentsTogether) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += "---\nkind: List\nitems:\n";
    for (int k = 0; k < 40'000; ++k) text += "- a\n";
  }
  EXPECT_THAT(ErrorsOf(text), ElementsAre(HasSubstr("more than 100000 values")));
}

TEST(ReaderTest, TemplateIsKeptAsItIs) {
  const TrainingJob job = JobOf(WithTrainer("  template: {spec: {a: [1, 2.5, true, ~, \"1\", x], b: {}}}"));
  EXPECT_EQ(job.roles[0].pod_template_json, R"({"spec":{"a":[1,2.5,true,null,"1","x"],"b":{}}})");
}

TEST(ReaderTest, LongFormOfOneWorkerIsTheShortForm) {
  EXPECT_EQ(JobOf(WithTrainer("  roles: [{name: worker, replicas: 2, devices: {type: CPU}}]")),
            JobOf(WithTrainer("  replicas: 2\n  devices: {type: CPU}")));
}

TEST(ReaderTest, RulesPointIntoTheFormThatWasWritten) {
  EXPECT_THAT(ErrorsOf(WithTrainer("  roles: [{name: worker, devices: {type: CPU, visible: [\"0\"]}}]")),
              ElementsAre(HasSubstr("5:56: spec.roles[0].devices.visible")));
  EXPECT_THAT(ErrorsOf(WithTrainer("  devices: {type: CPU, visible: [\"0\"]}")),
              ElementsAre(HasSubstr("5:33: spec.devices.visible")));
}

TEST(ReaderTest, DidYouMeanIsSaidOnlyOfNearWords) {
  EXPECT_THAT(ErrorsOf(WithTrainer("  devices: {type: cpu}")), ElementsAre(HasSubstr("did you mean CPU?")));
  EXPECT_THAT(ErrorsOf(WithTrainer("  devices: {type: Quantum}")),
              ElementsAre(::testing::Not(HasSubstr("did you mean"))));
}

}  // namespace
}  // namespace lockstep::spec
