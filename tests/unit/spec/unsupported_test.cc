#include "launcher/spec/unsupported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobOf;
using testing::WithSpec;
using testing::WithTrainer;

std::vector<std::string> Paths(const std::string& manifest) {
  std::vector<std::string> paths;
  for (const Finding& finding : UnsupportedFields(JobOf(manifest))) paths.push_back(finding.path);
  return paths;
}

std::string WithModel(const std::string& trainer) { return WithSpec("  trainer: {" + trainer + "}\n"); }

TEST(UnsupportedTest, NamesWhatIsReadButNotBuilt) {
  const std::string layers = "model: {layers: [{type: Dense, units: 10}]}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {WithSpec("  devices: {type: TPU}\n  program: {command: [a]}\n"), "spec.devices.type"},
      {WithTrainer("  strategy: {type: CentralStorage}"), "spec.strategy.type"},
      {WithTrainer("  strategy: {type: Pipeline}"), "spec.strategy.type"},
      {WithTrainer("  strategy: {shard: Gradients}"), "spec.strategy.shard"},
      {WithTrainer("  strategy: {scaling: Linear}"), "spec.strategy.scaling"},
      {WithModel("data: {format: CIFAR10, path: a}, " + layers), "spec.trainer.data.format"},
      {WithModel("model: {layers: [{type: Flatten}, {type: Dense, units: 10}]}"),
       "spec.trainer.model.layers[0].type"},
      {WithSpec("  program: {command: [a], framework: Horovod}\n"), "spec.program.framework"},
      {WithSpec("  program: {command: [a], framework: MPI}\n"), "spec.program.framework"},
      {WithSpec("  program: {command: [a], prepare: [b]}\n"), "spec.program.prepare"},
      {WithSpec("  program: {command: [a], progress: {logPattern: (?<step>.)}}\n"),
       "spec.program.progress.logPattern"},
      {WithTrainer("  network: {rdma: true}"), "spec.network.rdma"},
      {WithTrainer("  replicas: 2\n  runPolicy: {minReplicas: 1}"), "spec.runPolicy.minReplicas"},
      {WithTrainer("  suspend: true"), "spec.suspend"},
      {WithTrainer("  launcher: {inject: true}"), "spec.launcher.inject"},
      {WithTrainer("  roles: [{name: worker}, {name: evaluator}]"), "spec.roles[1].name"}};
  for (const auto& [manifest, path] : cases) EXPECT_THAT(Paths(manifest), ElementsAre(path)) << manifest;
  EXPECT_THAT(
      Paths(WithTrainer("  strategy: {type: ParameterServer}\n  roles: [{name: worker}, {name: ps}]")),
      ElementsAre("spec.roles[1].name", "spec.strategy.type"));
}

TEST(UnsupportedTest, IsSilentAboutWhatWorks) {
  EXPECT_THAT(
      Paths(WithTrainer("  replicas: 2\n  strategy: {crossDeviceOps: Gloo}\n  runPolicy: {minReplicas: 2}")),
      IsEmpty());
  EXPECT_THAT(
      Paths(WithTrainer("  strategy: {crossDeviceOps: SharedMemory}\n  devices: {softPlacement: true}")),
      IsEmpty());
  for (const char* framework : {"None", "TensorFlow", "PyTorch", "JAX"}) {
    EXPECT_THAT(Paths(WithSpec("  program: {command: [a], framework: " + std::string(framework) + "}\n")),
                IsEmpty());
  }
}

TEST(UnsupportedTest, LeavesTheDevicesToTheMachine) {
  for (const char* ops : {"NCCL", "HierarchicalCopy", "ReductionToOneDevice"}) {
    EXPECT_THAT(Paths(WithTrainer("  strategy: {crossDeviceOps: " + std::string(ops) + "}")), IsEmpty());
  }
  EXPECT_THAT(Paths(WithTrainer("  devices: {virtual: {perDevice: 4, memoryLimit: 1Gi}}")), IsEmpty());
  EXPECT_THAT(Paths(WithTrainer("  devices: {memory: {policy: Limit, limit: 1Gi, enforce: MPS}}")),
              IsEmpty());
  EXPECT_THAT(Paths(WithModel("precision: TF32, model: {layers: [{type: Dense, units: 10}]}")), IsEmpty());
}

TEST(UnsupportedTest, IsSilentAboutWhatIsTheClustersOnly) {
  EXPECT_THAT(Paths(WithTrainer(
                  "  template: {spec: {}}\n  runPolicy: {ttlSecondsAfterFinished: 1, cleanPodPolicy: All, "
                  "scheduleTimeoutSeconds: 9}")),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep::spec
