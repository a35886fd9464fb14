// What becomes of each kind's own fields.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "common/contract/exit_codes.h"
#include "tests/unit/import/support.h"

namespace lockstep::importer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::vector<std::string> RolesOf(const spec::TrainingJob& job) {
  std::vector<std::string> roles;
  for (const spec::Role& role : job.roles) roles.push_back(role.name + " " + std::to_string(role.replicas));
  return roles;
}

std::vector<std::string> LinesOfSample(std::string_view name) {
  return testing::LinesOf(testing::ImportText(testing::TextOf(testing::Sample(name))));
}

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// A PyTorchJob whose one worker has `container` beside its name and image.
std::string WorkerWith(const std::string& container) {
  return R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: one}
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            image: image
)" + container;
}

TEST(TfJobTest, HasItsRolesAndRunPolicy) {
  const spec::TrainingJob job = testing::JobOfSample("tf_job_servers.yaml");
  EXPECT_EQ(job.name, "mnist-ps");
  EXPECT_THAT(RolesOf(job), ElementsAre("chief 1", "worker 3", "ps 2", "evaluator 1"));
  EXPECT_EQ(job.program->framework, spec::Framework::kTensorFlow);
  EXPECT_THAT(job.program->command, ElementsAre("python", "/opt/train.py"));
  EXPECT_THAT(job.roles[0].program->command,
              ElementsAre("python", "/opt/train.py", "--log_dir=/logs", "--steps=1000"));
  EXPECT_TRUE(job.suspend);
  EXPECT_EQ(job.run_policy.max_restarts, 4);
  EXPECT_EQ(job.run_policy.ttl_after_finished, std::chrono::seconds(600));
  EXPECT_EQ(job.run_policy.active_deadline, std::chrono::seconds(7200));
  EXPECT_EQ(job.run_policy.schedule_timeout, std::chrono::seconds(120));
  EXPECT_EQ(job.run_policy.termination_grace_period, std::chrono::seconds(90));
  EXPECT_EQ(job.run_policy.clean_pod_policy, spec::CleanPodPolicy::kRunning);
  EXPECT_EQ(job.run_policy.gang, spec::GangScheduler::kVolcano);
  ASSERT_THAT(job.run_policy.exit_codes, SizeIs(2));  // ExitCode: 1 to 127 are permanent
  EXPECT_EQ(job.run_policy.exit_codes[0].codes.front(), 1);
  EXPECT_EQ(job.run_policy.exit_codes[1].codes.back(), 127);
  EXPECT_EQ(job.run_policy.exit_codes[0].action, spec::ExitAction::kFail);
}

TEST(TfJobTest, TellsPlaceAndFieldOfWhatItLeavesOut) {
  EXPECT_THAT(
      LinesOfSample("tf_job_servers.yaml"),
      AllOf(Contains("x.yaml:2: a Service, skipped"),
            Contains("x.yaml:27: spec.runPolicy.schedulingPolicy.minResources: no equivalent; left out"),
            Contains(StartsWith("x.yaml:25: spec.runPolicy.schedulingPolicy.queue: left out"))));
}

TEST(TfJobTest, VariablesThatAreNotFixedStayWithThePod) {
  const spec::TrainingJob job = testing::JobOfSample("tf_job_servers.yaml");
  EXPECT_THAT(job.roles[0].program->environment,
              ElementsAre(Pair("LOG_DIR", "/logs"), Pair("TF_CPP_MIN_LOG_LEVEL", "1")));
  const auto pod = nlohmann::json::parse(job.roles[0].pod_template_json);
  EXPECT_EQ(pod["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["key"], "access");
}

TEST(TfJobTest, AnEntrypointThatIsNotKnownIsNamedAsSuch) {
  const spec::TrainingJob job = testing::JobOfSample("tf_job_workers.yaml");
  EXPECT_THAT(job.program->command, ElementsAre("IMAGE-ENTRYPOINT"));
  EXPECT_THAT(LinesOfSample("tf_job_workers.yaml"), Contains(HasSubstr("ENTRYPOINT and CMD")));
  EXPECT_EQ(job.roles[0].devices.type, spec::DeviceType::kGpu);
  EXPECT_EQ(job.run_policy.max_restarts, 0);  // Never
}

TEST(PyTorchJobTest, MastersAndWorkersThatAreAlikeAreOneRole) {
  const spec::TrainingJob job = testing::JobOfSample("pytorch_job.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 4"));
  EXPECT_EQ(job.roles[0].processes_per_replica, 2);
  EXPECT_THAT(job.program->command,
              ElementsAre("python3", "-u", "/train_bert.py", "--checkpoint_dir", "/data"));
}

TEST(PyTorchJobTest, AMasterOfItsOwnIsAChief) {
  const spec::TrainingJob job = testing::JobOfSample("pytorch_job_plain.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("chief 1", "worker 1"));
  EXPECT_THAT(job.roles[0].program->command, Contains("--save"));
  EXPECT_THAT(LinesOfSample("pytorch_job_plain.yaml"), Contains(HasSubstr("$(RANK) in the command")));
}

TEST(PyTorchJobTest, ElasticPolicy) {
  const spec::TrainingJob job = testing::JobOfSample("pytorch_job_elastic.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 3"));
  EXPECT_EQ(job.run_policy.min_replicas, 1);
  EXPECT_EQ(job.run_policy.max_restarts, 100);
  EXPECT_THAT(LinesOfSample("pytorch_job_elastic.yaml"),
              AllOf(Contains(HasSubstr("PET_MONITOR_INTERVAL")),
                    Contains(HasSubstr("spec.elasticPolicy.metrics: left out")),
                    Contains(HasSubstr("spec.elasticPolicy.rdzvConf: no equivalent; left out"))));
}

TEST(PyTorchJobTest, ATorchrunWithinALongerScriptIsTold) {
  const Imported imported =
      testing::ImportText(WorkerWith("            command: [sh, -c, 'cd /x && torchrun train.py']\n"));
  EXPECT_THAT(testing::JobsOf(imported)[0].program->command,
              ElementsAre("sh", "-c", "cd /x && torchrun train.py"));
  EXPECT_THAT(testing::LinesOf(imported), Contains(HasSubstr("starts torchrun in a script of its own")));
}

TEST(PyTorchJobTest, AllGpusGetAProcess) {
  const spec::TrainingJob job = testing::JobOfText(WorkerWith(
      "            command: [torchrun, train.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n"));
  EXPECT_EQ(job.roles[0].processes_per_replica, std::nullopt);
}

TEST(MpiJobTest, TheLaunchersProgramIsTheWorkers) {
  const spec::TrainingJob job = testing::JobOfSample("mpi_job_v1.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 2"));
  EXPECT_EQ(job.program->framework, spec::Framework::kHorovod);
  EXPECT_THAT(job.program->command, ElementsAre("python", "/examples/mnist.py", "--epochs", "3"));
  EXPECT_THAT(job.program->environment, ElementsAre(Pair("NCCL_DEBUG", "INFO")));
  const auto pod = nlohmann::json::parse(job.roles[0].pod_template_json);
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"]["memory"], "4Gi");
  EXPECT_THAT(LinesOfSample("mpi_job_v1.yaml"), AllOf(Contains(HasSubstr("-mca btl ^openib: left out")),
                                                      Not(Contains(HasSubstr("refused when it is run")))));
}

TEST(MpiJobTest, SlotsAndTheLauncherThatWorksAreCounted) {
  const spec::TrainingJob job = testing::JobOfSample("mpi_job_v2beta1.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 3"));
  EXPECT_EQ(job.roles[0].processes_per_replica, 2);
  EXPECT_EQ(job.program->framework, spec::Framework::kMpi);
  EXPECT_EQ(job.run_policy.max_restarts, 0);
  const std::string text = testing::TextOf(testing::Sample("mpi_job_v2beta1.yaml"));
  EXPECT_THAT(testing::LinesOf(testing::ImportText(Replaced(text, "\"6\"", "\"5\""))),
              Contains(HasSubstr("-np 5: here 3 replicas with 2 processes each")));
}

TEST(TrainJobTest, LiesOverItsRuntime) {
  const spec::TrainingJob job = testing::JobOfSample("train_job.yaml");
  EXPECT_EQ(job.namespace_name, "team");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 2"));
  EXPECT_EQ(job.roles[0].processes_per_replica, 4);
  EXPECT_EQ(job.program->framework, spec::Framework::kPyTorch);
  EXPECT_EQ(job.program->working_directory, "/tmp");
  EXPECT_EQ(job.run_policy.gang, spec::GangScheduler::kCoscheduling);
  EXPECT_THAT(job.labels, ElementsAre(Pair("kueue.x-k8s.io/queue-name", "gpus"), Pair("project", "llm")));
  const auto pod = nlohmann::json::parse(job.roles[0].pod_template_json);
  EXPECT_EQ(pod["spec"]["securityContext"]["runAsUser"], 1000);
  EXPECT_EQ(pod["spec"]["nodeSelector"]["zone"], "a");
  EXPECT_EQ(pod["spec"]["containers"][0]["image"], "registry.example/llm:3");
  EXPECT_EQ(pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"], "/cache");
}

TEST(TrainJobTest, ARuntimeThatIsNotThereIsTold) {
  EXPECT_EQ(testing::JobOfSample("train_job_alone.yaml").program->framework, spec::Framework::kPyTorch);
  EXPECT_THAT(LinesOfSample("train_job_alone.yaml"),
              Contains(HasSubstr("\"torch-distributed\" is not among the files")));
}

TEST(TrainJobTest, ARuntimeMayBeInAnotherFile) {
  const std::string text = testing::TextOf(testing::Sample("train_job.yaml"));
  const size_t end = text.find("---\n");
  const Imported imported =
      ImportManifests({{"job.yaml", text.substr(end + 4)}, {"runtime.yaml", text.substr(0, end)}});
  EXPECT_THAT(testing::JobsOf(imported), ElementsAre(testing::JobOfSample("train_job.yaml")));
  EXPECT_THAT(testing::LinesOf(imported), Contains(StartsWith("runtime.yaml:17: ")));
}

TEST(JobSetTest, PodsOfAllJobsAreReplicas) {
  const spec::TrainingJob job = testing::JobOfSample("job_set.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 4"));
  EXPECT_THAT(job.program->command,
              ElementsAre("bash", "-xc", "exec python3 -u resnet.py --backend=gloo --out $HOME/model"));
  EXPECT_EQ(job.run_policy.max_restarts, 4);
  ASSERT_THAT(job.run_policy.exit_codes, SizeIs(1));
  EXPECT_THAT(job.run_policy.exit_codes[0].codes, ElementsAre(42, 43));
}

TEST(JobSetTest, NamesAndRolesAreMadeToFit) {
  const spec::TrainingJob job = testing::JobOfSample("job_set_roles.yaml");
  EXPECT_EQ(job.name, "job-2-a-name-that-is-longer-than-forty-l");
  EXPECT_THAT(RolesOf(job), ElementsAre("chief 1", "worker 4"));
  EXPECT_EQ(job.roles[1].devices.type, spec::DeviceType::kTpu);
  EXPECT_THAT(LinesOfSample("job_set_roles.yaml"),
              Contains(HasSubstr("spec.replicatedJobs[2]: left out: a TrainingJob has one role worker")));
}

TEST(VolcanoJobTest, HasGangPoliciesAndVolumes) {
  const spec::TrainingJob job = testing::JobOfSample("volcano_job.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("chief 1", "worker 2"));
  EXPECT_EQ(job.run_policy.gang, spec::GangScheduler::kVolcano);
  EXPECT_EQ(job.run_policy.max_restarts, 5);
  ASSERT_THAT(job.run_policy.exit_codes, SizeIs(1));
  EXPECT_THAT(job.run_policy.exit_codes[0].codes, ElementsAre(3));
  for (const spec::Role& role : job.roles) {
    const auto pod = nlohmann::json::parse(role.pod_template_json);
    EXPECT_EQ(pod["spec"]["priorityClassName"], "high");
    EXPECT_EQ(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "training-data");
  }
}

TEST(VolcanoJobTest, MpiIsTheWorkersProgram) {
  const spec::TrainingJob job = testing::JobOfSample("volcano_job_mpi.yaml");
  EXPECT_THAT(RolesOf(job), ElementsAre("worker 2"));
  EXPECT_THAT(job.program->command, ElementsAre("mpi_hello_world"));
  EXPECT_EQ(job.program->working_directory, "/home");
}

TEST(ImportTest, SeveralFilesAreOneOutput) {
  std::vector<Input> inputs;
  for (const auto& file : testing::Samples())
    inputs.push_back({file.filename().string(), testing::TextOf(file)});
  const Imported imported = ImportManifests(inputs);
  EXPECT_EQ(testing::JobsOf(imported).size(), inputs.size());
  std::vector<std::string> files;
  for (const Note& note : imported.notes) {
    if (files.empty() || files.back() != note.file) files.push_back(note.file);
  }
  EXPECT_EQ(files.size(), inputs.size());  // each file's notes together, in the order of the files
}

TEST(ImportTest, OtherKindsAndVersionsAreSkippedByName) {
  EXPECT_THAT(testing::LinesOf(testing::ImportText("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n")),
              ElementsAre("x.yaml:1: a ConfigMap, skipped"));
  EXPECT_THAT(testing::LinesOf(testing::ImportText("apiVersion: kubeflow.org/v1alpha2\nkind: MPIJob\n")),
              ElementsAre(HasSubstr("kubeflow.org/v1 and kubeflow.org/v2beta1 is read")));
  EXPECT_THAT(testing::LinesOf(testing::ImportText("apiVersion: batch/v1\nkind: Job\n")),
              ElementsAre("x.yaml:1: a Job, skipped"));
  EXPECT_THAT(testing::LinesOf(testing::ImportText("[1, 2]\n")),
              ElementsAre(HasSubstr("no object of Kubernetes")));
}

TEST(ImportTest, AListHasItsItems) {
  std::string items;
  std::istringstream lines(WorkerWith("            command: [python, train.py]\n"));
  for (std::string line; std::getline(lines, line);)
    items += (line.starts_with("api") ? "- " : "  ") + line + "\n";
  const spec::TrainingJob job = testing::JobOfText("apiVersion: v1\nkind: List\nitems:\n" + items);
  EXPECT_EQ(job.name, "one");
}

TEST(ImportTest, WhatIsNoJobIsAnError) {
  for (const char* text :
       {"apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec: {}\n",
        "apiVersion: kubeflow.org/v1\nkind: MPIJob\n",
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec: {replicatedJobs: 7}\n",
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: [tasks]\n", "a: &b c\n", "{", ""}) {
    const Imported imported = testing::ImportText(text);
    EXPECT_THAT(imported.errors, Not(IsEmpty())) << text;
    EXPECT_EQ(imported.manifests, "") << text;
  }
}

TEST(ImportTest, PodsThatAreNoneDoNotCrashIt) {
  const std::string text = testing::TextOf(testing::Sample("volcano_job.yaml"));
  const Imported imported = testing::ImportText(Replaced(
      text, "restartPolicy: OnFailure\n        containers:", "volumes: {a: b}\n        containers:"));
  EXPECT_THAT(testing::LinesOf(imported), Contains(HasSubstr("no PodTemplateSpec")));
  EXPECT_EQ(imported.jobs, 0);
}

TEST(ImportTest, ScriptsOfSeveralLinesStayReadable) {
  const Imported imported = testing::ImportText(WorkerWith(R"(            command:
            - sh
            - -c
            - |
              set -e
              if true; then
                python3 train.py

              fi
)"));
  EXPECT_THAT(
      imported.manifests,
      HasSubstr("    - |\n      set -e\n      if true; then\n        python3 train.py\n\n      fi\n"));
  EXPECT_EQ(testing::JobsOf(imported)[0].program->command[2],
            "set -e\nif true; then\n  python3 train.py\n\nfi\n");
}

TEST(ImportTest, ExitCodesSayWhatCame) {
  std::ostringstream out;
  std::ostringstream errors;
  const auto import = [&](const std::string& file, bool strict) {
    return Import({.files = {testing::Sample(file).string()}, .strict = strict}, out, errors);
  };
  EXPECT_EQ(import("pytorch_job.yaml", false), contract::kExitDone);
  EXPECT_EQ(import("pytorch_job.yaml", true), contract::kExitDone);
  EXPECT_EQ(import("job_set.yaml", false), contract::kExitDone);
  EXPECT_EQ(import("job_set.yaml", true), 1);
  EXPECT_EQ(import("not-there.yaml", false), contract::kExitUsage);
  EXPECT_THAT(errors.str(), HasSubstr("not-there.yaml"));
  EXPECT_THAT(out.str(), EndsWith("\n"));
}

}  // namespace
}  // namespace lockstep::importer
