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
  const std::vector<std::pair<std::string, std::string>> cases = {
      {WithSpec("  replicas: 3\n  devices: {type: TPU, accelerator: a, topology: 2x4}\n  program: {command: "
                "[a]}\n"),
       "spec.devices.topology"},
      {WithSpec("  processesPerReplica: 4\n  devices: {type: TPU, accelerator: a, topology: 2x4}\n  program: "
                "{command: [a]}\n"),
       "spec.processesPerReplica"},
      {WithSpec("  roles: [{name: worker, replicas: 2}, {name: evaluator}]\n  program: {command: [a]}\n  "
                "runPolicy: {minReplicas: 1}\n"),
       "spec.runPolicy.minReplicas"},
      {WithSpec("  roles: [{name: worker}, {name: evaluator, program: {command: [a], framework: MPI}}]\n"
                "  program: {command: [a]}\n"),
       "spec.roles[1].program.framework"},
      {WithSpec("  roles: [{name: worker}, {name: ps, devices: {memory: {policy: Limit, limit: 1Gi, enforce: "
                "MPS}}}]\n  program: {command: [a]}\n"),
       "spec.roles[1].devices.memory.enforce"},
      {WithTrainer("  replicas: 2\n  strategy: {type: Pipeline}"), "spec.replicas"},
      {WithTrainer(
           "  strategy: {type: ParameterServer}\n  roles: [{name: worker, devices: {type: GPU}}, {name: "
           "ps, devices: {type: GPU}}]"),
       "spec.roles[1].devices.type"},
      {WithTrainer("  network: {rdma: true}"), "spec.network.rdma"},
      {WithTrainer("  suspend: true"), "spec.suspend"},
      {WithTrainer("  roles: [{name: worker}, {name: evaluator}]"), "spec.roles[1].name"}};
  for (const auto& [manifest, path] : cases) EXPECT_THAT(Paths(manifest), ElementsAre(path)) << manifest;
}

TEST(UnsupportedTest, IsSilentAboutWhatWorks) {
  EXPECT_THAT(
      Paths(WithTrainer("  replicas: 2\n  strategy: {crossDeviceOps: Gloo}\n  runPolicy: {minReplicas: 1}")),
      IsEmpty());
  EXPECT_THAT(
      Paths(WithTrainer("  strategy: {crossDeviceOps: SharedMemory}\n  devices: {softPlacement: true}")),
      IsEmpty());
  EXPECT_THAT(Paths(WithTrainer("  launcher: {inject: true}")), IsEmpty());
  EXPECT_THAT(Paths(WithTrainer("  processesPerReplica: 2\n  strategy: {type: Pipeline}")), IsEmpty());
  EXPECT_THAT(Paths(WithTrainer("  devices: {type: GPU}\n  strategy: {type: Pipeline}")), IsEmpty());
  for (const char* framework : {"None", "TensorFlow", "PyTorch", "JAX"}) {
    EXPECT_THAT(Paths(WithSpec("  program: {command: [a], framework: " + std::string(framework) + "}\n")),
                IsEmpty());
  }
}

TEST(UnsupportedTest, NamesWhatParameterServersDoNot) {
  const std::string served = "  strategy: {type: ParameterServer}\n  roles: [{name: worker}, {name: ps}]\n";
  const std::string dense = "model: {layers: [{type: Dense, units: 10}]}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {dense + ", optimizer: {globalClipNorm: 1}", "spec.trainer.optimizer.globalClipNorm"},
      {dense + ", optimizer: {movingAverage: {momentum: 0.9}}",
       "spec.trainer.optimizer.movingAverage.evaluate"},
      {dense + ", data: {augmentation: {flip: true}}", "spec.trainer.data.augmentation"},
      {dense + ", data: {normalization: {mean: [0.5], standardDeviation: [1]}}",
       "spec.trainer.data.normalization"},
      {"model: {layers: [{type: BatchNormalization}, {type: Dense, units: 10}]}",
       "spec.trainer.model.layers[0].type"},
      {"model: {layers: [{type: Residual, layers: [{type: BatchNormalization}]}, {type: Dense, units: 10}]}",
       "spec.trainer.model.layers[0].layers[0].type"}};
  for (const auto& [trainer, path] : cases) {
    EXPECT_THAT(Paths(WithSpec(served + "  trainer: {" + trainer + "}\n")), ElementsAre(path)) << trainer;
  }
  EXPECT_THAT(Paths(WithSpec(served + "  trainer: {" + dense +
                             ", optimizer: {movingAverage: {momentum: 0.9, evaluate: false}}}\n")),
              IsEmpty());
}

TEST(UnsupportedTest, IsSilentAboutParameterServers) {
  EXPECT_THAT(Paths(WithTrainer(
                  "  strategy: {type: ParameterServer}\n  roles: [{name: worker, devices: {type: GPU}}, "
                  "{name: ps, devices: {type: CPU}}, {name: evaluator, devices: {type: GPU}}]")),
              IsEmpty());
  EXPECT_THAT(
      Paths(WithTrainer("  strategy: {type: ParameterServer}\n  roles: [{name: worker}, {name: ps}, {name: "
                        "evaluator}]")),
      IsEmpty());
}

TEST(UnsupportedTest, IsSilentAboutRolesOfPrograms) {
  EXPECT_THAT(Paths(WithSpec("  roles: [{name: chief}, {name: worker, replicas: 2}, {name: ps}, {name: "
                             "evaluator, program: {command: [b]}}]\n  program: {command: [a]}\n")),
              IsEmpty());
  EXPECT_THAT(
      Paths(WithSpec("  replicas: 2\n  devices: {type: TPU, accelerator: a, topology: 2x4}\n  program: "
                     "{command: [a]}\n")),
      IsEmpty());
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
