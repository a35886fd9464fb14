#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "common/contract/exit_codes.h"
#include "tests/paths.h"
#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// `lockstep run` on machines with GPUs, as NVML's recorded answers show them (tests/testdata/nvml), with
// programs that use none.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kT4[] = "GPU-7a1b2c3d-0000-4000-8000-000000000004";

std::string Library(const std::string& table) {
  return LOCKSTEP_BIN_DIR "/../tests/unit/placement/" + table + "/libnvidia-ml.so.1";
}

nlohmann::json OnGpus(nlohmann::json spec, const nlohmann::json& devices = nlohmann::json::object()) {
  spec["devices"] = devices;
  spec["devices"]["type"] = "GPU";
  spec.erase("processesPerReplica");
  return spec;
}

nlohmann::json Fraction(double fraction) {
  return {{"memory", {{"policy", "Fraction"}, {"fraction", fraction}}}};
}

// Runs jobs on one recorded machine with a ledger of its own.
class RunDevicesTest : public ::testing::Test {
 protected:
  JobRun::Options On(const std::string& table, std::vector<std::string> arguments = {}) const {
    return {.arguments = std::move(arguments),
            .environment = {{"LOCKSTEP_NVML_LIBRARY", Library(table)},
                            {"LOCKSTEP_DEVICE_LEDGER", folder_.File("ledger")}},
            .wrapper = {}};
  }

  const TemporaryFolder folder_;
};

// As PyTorch says it after set_device(LOCAL_RANK) in a process that sees one GPU.
TEST_F(RunDevicesTest, ExplainsAGpuThatARankDoesNotSee) {
  nlohmann::json spec =
      OnGpus(ShellSpec(8, "test $LOCAL_RANK = 0 || { echo 'CUDA error: invalid device ordinal'; exit 1; }"),
             {{"visibility", "PerProcess"}});
  spec["runPolicy"]["maxRestarts"] = 0;
  JobRun run(spec, On("eight_h100"));
  EXPECT_EQ(run.Wait(), 1);
  EXPECT_THAT(run.launcher().err(), HasSubstr("as set_device(LOCAL_RANK) does: use cuda:0, or say "
                                              "devices.visibility: PerReplica"));
}

TEST_F(RunDevicesTest, GivesEachRankAGpuOfItsOwn) {
  JobRun run(OnGpus(ShellSpec(8, "echo $LOCKSTEP_DEVICE $CUDA_VISIBLE_DEVICES $LOCKSTEP_DEVICE_UUID")),
             On("eight_h100"));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("lockstep: 8 physical GPUs, 8 logical GPUs\n"));
  for (int rank = 0; rank < 8; ++rank) {
    const std::string uuid =
        "GPU-" + std::string(8, static_cast<char>('0' + rank)) + "-4e2c-5a1b-9d3f-0123456789ab";
    EXPECT_THAT(run.Log(rank), HasSubstr("GPU " + uuid + " " + uuid + "\n"));
  }
}

TEST_F(RunDevicesTest, SaysAtTheStartThatTheImageWantsANewerDriver) {
  nlohmann::json spec = OnGpus(ShellSpec(1, "true"));
  for (const bool framework : {false, true}) {
    if (framework) spec["program"]["framework"] = "PyTorch";
    JobRun::Options options = On("one_t4");
    options.environment.emplace_back("CUDA_DRIVER_VERSION", "9999.1");
    JobRun run(spec, options);
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    const bool said = run.launcher().err().find("older than 9999.1, which came with this image's CUDA") !=
                      std::string::npos;
    EXPECT_EQ(said, framework) << run.launcher().err();
  }
}

// The guides' two programs, on 0,1 and on 3,2.
TEST_F(RunDevicesTest, KeepsToTheOrderOfAnInheritedPool) {
  const nlohmann::json spec = OnGpus(ShellSpec(1, "echo on $CUDA_VISIBLE_DEVICES"));
  for (const std::string pool : {"0,1", "3,2"}) {
    JobRun::Options options = On("eight_h100");
    options.environment.emplace_back("CUDA_VISIBLE_DEVICES", pool);
    JobRun run(spec, options);
    ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
    EXPECT_THAT(run.launcher().err(), HasSubstr("2 physical GPUs, 2 logical GPUs"));
    for (const int rank : {0, 1}) {
      EXPECT_THAT(run.Log(rank),
                  HasSubstr("on GPU-" + std::string(8, pool[static_cast<size_t>(2 * rank)]) + "-"));
    }
  }
}

// The guides: "2 physical GPUs, 1 logical", and four virtual devices of 1 GiB.
TEST_F(RunDevicesTest, DividesAGpu) {
  JobRun run(
      OnGpus(ShellSpec(1, "echo $RANK/$WORLD_SIZE $LOCKSTEP_MEMORY_LIMIT shared=$LOCKSTEP_SHARED_DEVICE"),
             {{"virtual", {{"perDevice", 4}, {"memoryLimit", "1Gi"}}}, {"logPlacement", true}}),
      On("one_t4"));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("lockstep: 1 physical GPU, 4 logical GPUs\n"));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_THAT(run.Log(rank), HasSubstr(number + "/4 1073741824 shared=1\n"));
    EXPECT_THAT(run.launcher().err(), HasSubstr("rank " + number + " on " + kT4));
  }
}

TEST_F(RunDevicesTest, RefusesToDivideWhatIsNotThereUnlessSoft) {
  const nlohmann::json devices = {{"virtual", {{"perDevice", 2}}}};
  nlohmann::json spec = ShellSpec(1, "echo on $LOCKSTEP_DEVICE");
  spec["devices"] = devices;
  spec.erase("processesPerReplica");
  JobRun refused(spec, On("no_driver"));
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.launcher().err(), HasSubstr("spec.devices.virtual: there is no GPU to divide"));
  spec["devices"]["softPlacement"] = true;
  JobRun soft(spec, On("no_driver"));
  EXPECT_EQ(soft.Wait(), 0) << soft.launcher().err();
  EXPECT_THAT(soft.Log(1), HasSubstr("on CPU\n"));
}

TEST_F(RunDevicesTest, LetsTwoJobsShareAGpuAtAHalfEach) {
  const auto script = [this](const char* name) {
    // Each waits for the other, so that both run at once or neither ends.
    return "touch " + folder_.File(name) + "; while [ ! -e " + folder_.File("a") + " ] || [ ! -e " +
           folder_.File("b") + " ]; do sleep 0.02; done";
  };
  JobRun first(OnGpus(ShellSpec(1, script("a")), Fraction(0.5)), On("one_t4"));
  JobRun second(OnGpus(ShellSpec(1, script("b")), Fraction(0.5)), On("one_t4"));
  EXPECT_EQ(first.Wait(), 0) << first.launcher().err();
  EXPECT_EQ(second.Wait(), 0) << second.launcher().err();
}

TEST_F(RunDevicesTest, RefusesAJobThatWouldOvercommitAndNamesTheHolder) {
  JobRun holder(OnGpus(ShellSpec(1, "exec sleep 1000"), Fraction(0.5)), On("one_t4"));
  ASSERT_EQ(holder.Pids().size(), 1u) << holder.launcher().err();
  const nlohmann::json more = OnGpus(ShellSpec(1, "echo ran"), Fraction(0.6));

  JobRun refused(more, On("one_t4"));
  EXPECT_EQ(refused.Wait(), 2) << refused.launcher().err();
  EXPECT_THAT(refused.launcher().err(), HasSubstr(std::string("device ") + kT4 + " is promised to others"));
  EXPECT_THAT(refused.launcher().err(), HasSubstr("job default/test of "));
  EXPECT_THAT(refused.launcher().err(), HasSubstr("holds 7.5 GiB (Fraction); this job takes 9 GiB"));
  EXPECT_THAT(refused.launcher().err(), HasSubstr("7.5 GiB of 15 GiB is free"));

  JobRun forced(more, On("one_t4", {"--force"}));
  EXPECT_EQ(forced.Wait(), 0) << forced.launcher().err();
  EXPECT_THAT(forced.launcher().err(), HasSubstr("started all the same (--force)"));

  JobRun growing(OnGpus(ShellSpec(1, "echo ran")), On("one_t4"));
  EXPECT_EQ(growing.Wait(), 0) << growing.launcher().err();

  // Nobody is left to give it back.
  holder.launcher().Signal(SIGKILL);
  holder.Wait();
  int code = 2;
  // The guard is gone at once; the launcher below it, which holds the device, is told by the kernel.
  EXPECT_TRUE(WaitUntil([&] {
    JobRun next(more, On("one_t4"));
    code = next.Wait();
    return code != 2;
  }));
  EXPECT_EQ(code, 0);
}

TEST_F(RunDevicesTest, SaysWhyALostGpuIsNotUsed) {
  JobRun run(OnGpus(ShellSpec(1, "echo ran")), On("lost_gpu"));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("2 physical GPUs, 2 logical GPUs"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("GPU 1 is left out: open: GPU is lost"));
}

TEST_F(RunDevicesTest, ShowsThePolicyAndTheGpuInItsStatusAndMetrics) {
  JobRun run(OnGpus(ShellSpec(1,
                              "echo '{\"event\":\"memory\",\"kind\":\"held\",\"bytes\":4096}' "
                              ">&$LOCKSTEP_EVENTS_FD; exec sleep 1000"),
                    {{"memory", {{"policy", "Limit"}, {"limit", "2Gi"}}}}),
             On("one_t4"));
  ASSERT_EQ(run.Pids().size(), 1u) << run.launcher().err();
  nlohmann::json status;
  EXPECT_TRUE(WaitUntil([&] {
    status = run.Status();
    return status.is_object() && status["ranks"][0]["memory"].contains("heldBytes") &&
           status["devices"][0].contains("powerWatts");
  })) << status.dump();
  const nlohmann::json rank = status["ranks"][0];
  EXPECT_EQ(rank["device"]["type"], "GPU");
  EXPECT_EQ(rank["device"]["devices"][0], kT4);
  EXPECT_EQ(rank["memory"]["policy"], "Limit");
  EXPECT_EQ(rank["memory"]["limitBytes"], 2147483648);
  EXPECT_EQ(rank["memory"]["heldBytes"], 4096);
  const nlohmann::json device = status["devices"][0];
  EXPECT_EQ(device["uuid"], kT4);
  EXPECT_EQ(device["powerWatts"], "68.2");
  EXPECT_EQ(device["throttled"], nlohmann::json({"PowerCap", "ThermalSoftware"}));
  const std::string metrics = run.Get("/metrics");
  for (const char* line :
       {"lockstep_device_memory_bytes{kind=\"limit\",process=\"0\",replica=\"0\",role=\"worker\"} 2147483648",
        "lockstep_device_memory_bytes{kind=\"held\",process=\"0\",replica=\"0\",role=\"worker\"} 4096",
        "lockstep_device_memory_bytes{device=\"0\",kind=\"device_used\"} 1048576",
        "lockstep_device_utilization_ratio{device=\"0\"} 0.37",
        "lockstep_device_temperature_celsius{device=\"0\"} 54",
        "lockstep_device_throttled{device=\"0\",reason=\"PowerCap\"} 1",
        "lockstep_device_throttled{device=\"0\",reason=\"PowerBrake\"} 0",
        "lockstep_device_xid_errors_total{device=\"0\"} 0"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
}

TEST_F(RunDevicesTest, GoesOnWithoutAGpuThatFailed) {
  JobRun::Options options = On("eight_h100");
  options.environment.emplace_back("FAKE_NVML_EVENTS", folder_.File("events"));
  const std::string script =
      "echo generation $LOCKSTEP_GENERATION of $WORLD_SIZE on $LOCKSTEP_DEVICE_UUID;"
      "if [ $LOCKSTEP_GENERATION = 0 ] && [ $RANK = 2 ]; then echo '2 xid 79' >> " +
      folder_.File("events") + "; kill -ABRT $$; fi; [ $LOCKSTEP_GENERATION = 1 ] || exec sleep 1000";
  JobRun run(OnGpus(ShellSpec(1, script)), options);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  const std::string err = run.launcher().err();
  EXPECT_THAT(err, HasSubstr("its device: GPU 2 (GPU-22222222-4e2c-5a1b-9d3f-0123456789ab): "
                             "Xid 79 (GPU has fallen off the bus)\n"));
  EXPECT_THAT(err, HasSubstr("the job goes on with 7 processes instead of 8"));
  EXPECT_THAT(run.Log(2), HasSubstr("generation 1 of 7 on GPU-33333333"));
}

// No Xid error tells of it: the driver only stops answering.
TEST_F(RunDevicesTest, GoesOnWithoutAGpuThatGotLost) {
  JobRun::Options options = On("eight_h100");
  options.environment.emplace_back("FAKE_NVML_EVENTS", folder_.File("events"));
  JobRun run(OnGpus(ShellSpec(1, "[ $LOCKSTEP_GENERATION = 1 ] && exit 0; exec sleep 1000")), options);
  const std::vector<pid_t> pids = run.Pids();
  ASSERT_EQ(pids.size(), 8u) << run.launcher().err();
  folder_.Write("events", "5 lost\n");
  ASSERT_TRUE(WaitUntil([&] {
    const nlohmann::json status = run.Status();
    return status.is_object() && status["devices"][5].value("trouble", "") == "GPU is lost";
  }));
  ::kill(pids[5], SIGKILL);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("GPU 5 failed: GPU is lost; the job goes on with 7 processes"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("7 physical GPUs, 7 logical GPUs"));
}

// A replica with fewer GPUs has fewer ranks; one with none leaves, and the others go on without it.
TEST_F(RunDevicesTest, AReplicaThatLosesItsGpusLeavesAnElasticJob) {
  nlohmann::json spec = OnGpus(ShellSpec(1, "[ $WORLD_SIZE != 1 ] || exit 0; exec sleep 1000"));
  spec["replicas"] = 2;
  spec["runPolicy"] = {{"minReplicas", 1}};
  const std::string port = std::to_string(FreePort());
  const auto start = [&](int replica) {
    const std::string number = std::to_string(replica);
    JobRun::Options options = On("one_t4", {"--replica", number, "--rendezvous", "127.0.0.1:" + port,
                                            "--token-file", folder_.File("token"), "--elastic-wait", "1"});
    options.environment.emplace_back("FAKE_NVML_EVENTS", folder_.File("events-" + number));
    return std::make_unique<JobRun>(spec, options);
  };
  const auto first = start(0);
  ASSERT_TRUE(WaitUntil([&] { return !ReadText(folder_.File("token")).empty(); })) << first->launcher().err();
  const auto second = start(1);
  const std::vector<pid_t> pids = second->Pids();
  ASSERT_EQ(pids.size(), 1u) << first->launcher().err() << second->launcher().err();
  folder_.Write("events-1", "0 lost\n");
  ASSERT_TRUE(WaitUntil([&] {
    const nlohmann::json status = second->Status();
    return status.is_object() && status["devices"][0].value("trouble", "") == "GPU is lost";
  }));
  ::kill(pids[0], SIGKILL);
  EXPECT_EQ(second->Wait(), contract::kExitDeviceLost) << second->launcher().err();
  EXPECT_THAT(second->launcher().err(), HasSubstr("GPU 0 failed: GPU is lost; the job does not go on"));
  EXPECT_EQ(first->Wait(), 0) << first->launcher().err();
  EXPECT_THAT(first->launcher().err(), HasSubstr("generation 1 starts without replica 1: 1 of 2 replicas"));
}

TEST_F(RunDevicesTest, FailsAndNamesTheGpuWhereTheProcessesAreCounted) {
  JobRun::Options options = On("eight_h100");
  options.environment.emplace_back("FAKE_NVML_EVENTS", folder_.File("events"));
  nlohmann::json spec = OnGpus(ShellSpec(
      1, "[ $RANK = 0 ] || exec sleep 1000; echo '0 xid 48' >> " + folder_.File("events") + "; exit 9"));
  spec["processesPerReplica"] = 8;
  JobRun run(spec, options);
  EXPECT_EQ(run.Wait(), 13) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(),
              HasSubstr("GPU 0 failed: Xid 48 (double bit ECC error); the job does not go on"));
  EXPECT_THAT(run.launcher().err(), HasSubstr("spec.processesPerReplica: 8 processes for"));
}

TEST_F(RunDevicesTest, KeepsAGpuWhoseProcessErred) {
  JobRun::Options options = On("one_t4");
  options.environment.emplace_back("FAKE_NVML_EVENTS", folder_.File("events"));
  JobRun run(OnGpus(ShellSpec(1, "[ $LOCKSTEP_GENERATION = 1 ] && exit 0; echo '0 xid 31' >> " +
                                     folder_.File("events") + "; exit 9")),
             options);
  EXPECT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("Xid 31 (GPU memory page fault)"));
}

// A control daemon that does what NVIDIA's documentation says of it: -d goes into the background, and "quit"
// on standard input ends it.
constexpr char kFakeMps[] = R"(#!/bin/sh
log=$FAKE_MPS_LOG
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -d ]; then
  [ -z "$FAKE_MPS_FAILS" ] || { echo "no device to serve" >&2; exit 1; }
  mkfifo "$pipe/control"
  (trap '' HUP; read line < "$pipe/control"; echo "ended by $line" >> "$log"; rm "$pipe/control") > /dev/null 2>&1 &
  echo "started on $CUDA_VISIBLE_DEVICES" >> "$log"
else
  read line
  echo "$line" > "$pipe/control"
  while [ -e "$pipe/control" ]; do sleep 0.01; done
fi
)";

class RunMpsTest : public RunDevicesTest {
 protected:
  void SetUp() override {
    const std::filesystem::path program = folder_.Write("nvidia-cuda-mps-control", kFakeMps);
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }
  JobRun::Options WithMps() const {
    JobRun::Options options = On("one_t4");
    options.environment.emplace_back("PATH", folder_.path().string() + ":" + std::getenv("PATH"));
    options.environment.emplace_back("FAKE_MPS_LOG", folder_.File("mps.log"));
    return options;
  }
  std::string MpsLog() const { return ReadText(folder_.File("mps.log")); }
  nlohmann::json Spec(const std::string& script) const {
    return OnGpus(ShellSpec(1, script),
                  {{"memory", {{"policy", "Limit"}, {"limit", "1Gi"}, {"enforce", "MPS"}}},
                   {"virtual", {{"perDevice", 2}}}});
  }
};

TEST_F(RunMpsTest, StartsADaemonOfItsOwnAndStopsIt) {
  JobRun run(Spec("test -p $CUDA_MPS_PIPE_DIRECTORY/control && echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT at "
                  "$CUDA_MPS_PIPE_DIRECTORY"),
             WithMps());
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_EQ(MpsLog(), std::string("started on ") + kT4 + "\nended by quit\n");
  EXPECT_THAT(run.Log(1), HasSubstr("0=1024M at /"));
  const std::string log = run.Log(1);
  const std::string folder = log.substr(log.find(" at ") + 4, log.rfind('\n') - log.find(" at ") - 4);
  EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
}

TEST_F(RunMpsTest, StartsANewOneForTheNextGeneration) {
  JobRun run(Spec("[ $LOCKSTEP_GENERATION = 1 ] || exit 9"), WithMps());
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  const std::string once = std::string("started on ") + kT4 + "\nended by quit\n";
  EXPECT_EQ(MpsLog(), once + once);
}

TEST_F(RunMpsTest, SaysWhyThereIsNone) {
  JobRun::Options failing = WithMps();
  failing.environment.emplace_back("FAKE_MPS_FAILS", "1");
  JobRun failed(Spec("echo ran"), failing);
  EXPECT_EQ(failed.Wait(), 2);
  EXPECT_THAT(failed.launcher().err(),
              HasSubstr("nvidia-cuda-mps-control -d: exit code 1: no device to serve"));

  JobRun absent(Spec("echo ran"), On("one_t4"));
  EXPECT_EQ(absent.Wait(), 2);
  EXPECT_THAT(
      absent.launcher().err(),
      HasSubstr("spec.devices.memory.enforce: MPS needs nvidia-cuda-mps-control, which is not in the PATH"));
}

TEST_F(RunDevicesTest, RefusesNcclOnTheCpuBeforeAnythingStarts) {
  nlohmann::json spec = {{"processesPerReplica", 2},
                         {"strategy", {{"crossDeviceOps", "NCCL"}}},
                         {"trainer",
                          {{"data", {{"samples", 1024}, {"testSamples", 64}}},
                           {"model", {{"layers", {{{"type", "Dense"}, {"units", 10}}}}}},
                           {"batchSize", 64}}}};
  JobRun refused(spec, On("no_driver"));
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.launcher().err(), HasSubstr("spec.strategy.crossDeviceOps: NCCL sums on GPUs"));
  spec["devices"]["softPlacement"] = true;
  JobRun soft(spec, On("no_driver"));
  EXPECT_EQ(soft.Wait(), 0) << soft.launcher().err();
  EXPECT_THAT(soft.launcher().err(), HasSubstr("it is Auto (softPlacement)"));
  EXPECT_THAT(soft.launcher().err(),
              HasSubstr("Auto is the CPU here: this machine has no GPU; no NVIDIA driver"));
}

TEST_F(RunDevicesTest, TellsTheDryRunToo) {
  const std::string manifest =
      folder_.Write("job.json", nlohmann::json{{"apiVersion", "lockstep.dev/v1alpha1"},
                                               {"kind", "TrainingJob"},
                                               {"metadata", {{"name", "dry"}}},
                                               {"spec", OnGpus(ShellSpec(1, "true"), {{"visible", {"1"}}})}}
                                    .dump());
  LauncherProcess dry({.arguments = {"run", manifest, "--dry-run", "-o", "json"},
                       .environment = {{"LOCKSTEP_NVML_LIBRARY", Library("eight_h100")}},
                       .working_directory = "",
                       .wrapper = {}});
  EXPECT_EQ(dry.Wait(), 0) << dry.err();
  EXPECT_THAT(dry.err(), HasSubstr("8 physical GPUs, 1 logical GPU\n"));
  EXPECT_THAT(dry.err(), Not(HasSubstr("error")));
  const auto plan = nlohmann::json::parse(dry.out());
  EXPECT_EQ(plan["processes"][0]["environment"]["LOCKSTEP_DEVICE"], "GPU");
}

}  // namespace
}  // namespace lockstep::testing
