#include "launcher/import/torchrun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/import/support.h"

namespace lockstep::importer {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

spec::TrainingJob JobOf(const Imported& imported) {
  EXPECT_THAT(imported.errors, IsEmpty()) << imported.errors.front().ToString();
  const std::vector<spec::TrainingJob> jobs = testing::JobsOf(imported);
  return jobs.size() == 1 ? jobs.front() : spec::TrainingJob{};
}

std::string ErrorOf(std::string_view command_line) {
  const Imported imported = ImportTorchrun(command_line);
  EXPECT_EQ(imported.jobs, 0);
  return imported.errors.empty() ? "" : imported.errors.front().ToString();
}

TEST(TorchrunTest, BecomesAJobWithItsProcesses) {
  const Imported imported = ImportTorchrun("torchrun --nproc_per_node 4 train.py --lr 0.1");
  EXPECT_EQ(imported.manifests, R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata:
  name: train
spec:
  processesPerReplica: 4
  program:
    framework: PyTorch
    command:
    - python3
    - "-u"
    - train.py
    - "--lr"
    - "0.1"
  runPolicy:
    maxRestarts: 0
)");
  EXPECT_THAT(imported.notes, IsEmpty());
}

TEST(TorchrunTest, HasOneProcessUnlessToldOtherwise) {
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun train.py")).roles[0].processes_per_replica, 1);
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun --nproc-per-node=8 train.py")).roles[0].processes_per_replica, 8);
  const spec::Role gpus = JobOf(ImportTorchrun("torchrun --nproc-per-node gpu train.py")).roles[0];
  EXPECT_EQ(gpus.processes_per_replica, std::nullopt);
  EXPECT_EQ(gpus.devices.type, spec::DeviceType::kGpu);
  const Imported cpus = ImportTorchrun("torchrun --nproc-per-node cpu train.py");
  EXPECT_EQ(JobOf(cpus).roles[0].devices.type, spec::DeviceType::kCpu);
  EXPECT_THAT(testing::LinesOf(cpus), ElementsAre(HasSubstr("processesPerReplica")));
}

TEST(TorchrunTest, ARangeOfNodesIsElastic) {
  const Imported imported = ImportTorchrun("torchrun --nnodes=2:4 --max-restarts=3 train.py");
  const spec::TrainingJob job = JobOf(imported);
  EXPECT_EQ(job.roles[0].replicas, 4);
  EXPECT_EQ(job.run_policy.min_replicas, 2);
  EXPECT_EQ(job.run_policy.max_restarts, 3);
  EXPECT_THAT(testing::LinesOf(imported), Contains(HasSubstr("--rendezvous")));
  EXPECT_THAT(testing::LinesOf(ImportTorchrun("torchrun --nnodes 0 train.py")),
              Contains(HasSubstr("LEAST:MOST")));
}

TEST(TorchrunTest, EveryOtherOptionIsToldOf) {
  const std::vector<std::string> options = {"--node-rank 1",
                                            "--rdzv-backend c10d",
                                            "--rdzv_endpoint host:29400",
                                            "--rdzv-id 7",
                                            "--rdzv-conf a=b",
                                            "--standalone",
                                            "--master_addr host",
                                            "--master-port 1",
                                            "--local-addr 10.0.0.1",
                                            "--monitor-interval 5",
                                            "--start-method fork",
                                            "--run-path",
                                            "--event-log-handler x",
                                            "--role trainer",
                                            "--log-dir /logs",
                                            "-r 3",
                                            "--redirects 3",
                                            "-t 3",
                                            "--tee=3",
                                            "--local-ranks-filter 0",
                                            "--logs-specs x",
                                            "--numa-binding node",
                                            "--signals-to-handle SIGUSR1",
                                            "--use-env",
                                            "--virtual-local-rank"};
  for (const std::string& option : options) {
    const Imported imported = ImportTorchrun("torchrun " + option + " train.py");
    EXPECT_EQ(JobOf(imported).program->command.back(), "train.py") << option;
    ASSERT_THAT(testing::LinesOf(imported), Not(IsEmpty())) << option;
    std::string name = option.substr(0, option.find_first_of(" ="));
    std::replace(name.begin(), name.end(), '_', '-');
    EXPECT_THAT(testing::LinesOf(imported).front(), AllOf(StartsWith("torchrun: " + name))) << option;
  }
}

TEST(TorchrunTest, StartsModulesAndPrograms) {
  EXPECT_THAT(JobOf(ImportTorchrun("torchrun -m pkg.train --x")).program->command,
              ElementsAre("python3", "-u", "-m", "pkg.train", "--x"));
  EXPECT_THAT(JobOf(ImportTorchrun("torchrun --no-python ./train.sh -m")).program->command,
              ElementsAre("./train.sh", "-m"));
  EXPECT_THAT(JobOf(ImportTorchrun("/opt/python3.11 -m torch.distributed.run -- train.py")).program->command,
              ElementsAre("/opt/python3.11", "-u", "train.py"));
}

TEST(TorchrunTest, TheOldLauncherPassedARankOn) {
  const auto about_rank = HasSubstr("LOCAL_RANK from its environment");
  EXPECT_THAT(testing::LinesOf(ImportTorchrun("python -m torch.distributed.launch train.py")),
              Contains(about_rank));
  EXPECT_THAT(testing::LinesOf(ImportTorchrun("python -m torch.distributed.launch --use_env train.py")),
              Not(Contains(about_rank)));
}

TEST(TorchrunTest, VariablesBeforeItAreTheJobs) {
  const Imported imported = ImportTorchrun(
      "OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES=3,1 RANK=4 HOME=$HOME/x torchrun train.py $DATA");
  const spec::TrainingJob job = JobOf(imported);
  EXPECT_THAT(job.program->environment, ElementsAre(Pair("OMP_NUM_THREADS", "2")));
  EXPECT_THAT(job.roles[0].devices.visible, ElementsAre("3", "1"));
  EXPECT_THAT(job.program->command, ElementsAre("sh", "-c", "exec python3 -u train.py $DATA"));
  EXPECT_THAT(testing::LinesOf(imported),
              ElementsAre(HasSubstr("RANK: Lockstep sets it"), HasSubstr("HOME: left out")));
}

TEST(TorchrunTest, NamesTheJobByTheScript) {
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun /a/My_Train.v2.py")).name, "my-train-v2");
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun -m pkg.train")).name, "pkg-train");
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun 3d.py")).name, "job-3d");
  EXPECT_EQ(JobOf(ImportTorchrun("torchrun " + std::string(60, 'a') + ".py")).name, std::string(40, 'a'));
}

TEST(TorchrunTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf("torchrun train.py && ls"), HasSubstr("more than one"));
  EXPECT_THAT(ErrorOf("mpirun -np 2 train.py"), HasSubstr("is no torchrun"));
  EXPECT_THAT(ErrorOf("torchrun --nproc 2"), HasSubstr("\"--nproc\" is no option"));
  EXPECT_THAT(ErrorOf("torchrun --nnodes"), HasSubstr("has no value"));
  EXPECT_THAT(ErrorOf("torchrun --standalone"), HasSubstr("names no script"));
}

}  // namespace
}  // namespace lockstep::importer
