#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "tests/paths.h"
#include "tests/support/free_port.h"
#include "tests/support/launcher_process.h"

// spec.program.framework: MPI, for ranks that speak PMIx as MPI_Init does.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json MpiSpec(int processes, const std::string& arguments = "") {
  nlohmann::json spec = ShellSpec(
      processes,
      "echo folder=$OMPI_MCA_btl_sm_backing_directory; exec " LOCKSTEP_BIN_DIR "/pmix_client " + arguments);
  spec["program"]["framework"] = "MPI";
  return spec;
}

std::string FolderIn(const std::string& log) {
  const size_t begin = log.find("folder=") + 7;
  return log.substr(begin, log.find('\n', begin) - begin);
}

// A job of two replicas, as on two machines.
struct TwoLaunchers {
  explicit TwoLaunchers(const nlohmann::json& spec) {
    const std::string address = "127.0.0.1:" + std::to_string(FreePort());
    const auto start = [&](int replica) {
      return std::make_unique<JobRun>(
          spec, JobRun::Options{.arguments = {"--replica", std::to_string(replica), "--rendezvous", address,
                                              "--token-file", folder.File("token")}});
    };
    first = start(0);
    EXPECT_TRUE(WaitUntil([&] { return !ReadText(folder.File("token")).empty(); }))
        << first->launcher().err();
    second = start(1);
  }

  TemporaryFolder folder;
  std::unique_ptr<JobRun> first, second;
};

TEST(MpiTest, EachRankHearsOfTheOthersAndNothingIsLeft) {
  JobRun run(MpiSpec(3));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_THAT(run.Log(rank), HasSubstr("rank " + number + " of 3 local " + number +
                                         " heard word-0@machine-0 word-1@machine-0 word-2@machine-0\n"));
  }
  EXPECT_FALSE(std::filesystem::exists(FolderIn(run.Log(0)))) << FolderIn(run.Log(0));
  EXPECT_THAT(run.launcher().err(), Not(HasSubstr("MPI")));
}

TEST(MpiTest, RanksOfTwoMachinesHearOfOneAnother) {
  nlohmann::json spec = MpiSpec(2);
  spec["replicas"] = 2;
  TwoLaunchers runs(spec);
  ASSERT_EQ(runs.first->Wait(), 0) << runs.first->launcher().err();
  ASSERT_EQ(runs.second->Wait(), 0) << runs.second->launcher().err();
  const std::string all = " heard word-0@machine-0 word-1@machine-0 word-2@machine-1 word-3@machine-1\n";
  EXPECT_THAT(runs.first->Log(1), HasSubstr("rank 1 of 4 local 1" + all));
  EXPECT_THAT(runs.second->Log(3), HasSubstr("rank 3 of 4 local 1" + all));
}

TEST(MpiTest, TheProgramMayBeTheRoles) {
  nlohmann::json spec = MpiSpec(2);
  spec = {{"roles",
           {{{"name", "worker"},
             {"processesPerReplica", 2},
             {"devices", spec["devices"]},
             {"program", spec["program"]}}}}};
  JobRun run(spec);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.Log(1), HasSubstr("rank 1 of 2 local 1 heard word-0@machine-0 word-1@machine-0\n"));
}

TEST(MpiTest, AfterAKilledRankTheyMeetAnew) {
  const TemporaryFolder folder;
  JobRun run(MpiSpec(3, folder.File("killed")));
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("restarting all ranks (1 of 3)"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(run.Log(rank), HasSubstr(" heard word-0@"));
  EXPECT_FALSE(std::filesystem::exists(FolderIn(run.Log(0))));
}

TEST(MpiTest, RanksThatNeverAskWhoTheOthersAreAreTold) {
  nlohmann::json spec = ShellSpec(2, "exit 0");
  spec["program"]["framework"] = "MPI";
  JobRun run(spec);
  ASSERT_EQ(run.Wait(), 0) << run.launcher().err();
  EXPECT_THAT(run.launcher().err(), HasSubstr("each was a world of its own"));
}

// Horovod's Gloo, as horovod/common/gloo/http_store.cc asks.
constexpr char kHorovodRank[] = R"(
import os, time, urllib.error, urllib.request

base = f"http://{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}/"

def ask(method, key, body=None):
    try:
        request = urllib.request.Request(base + key, method=method, data=body)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return None

def meet(scope, rank, size):
    ask("PUT", f"{scope}/{rank}", f"{scope}{rank}".encode())
    heard = []
    for other in range(size):
        while (word := ask("GET", f"{scope}/{other}")) is None:
            time.sleep(0.01)
        heard.append(word.decode())
    ask("DELETE", f"{scope}/{rank}")
    return " ".join(heard)

def number(name):
    return int(os.environ["HOROVOD_" + name])

print(meet("global_", number("RANK"), number("SIZE")), "|",
      meet("local_" + os.environ["HOROVOD_HOSTNAME"], number("LOCAL_RANK"), number("LOCAL_SIZE")), "|",
      meet("cross_" + os.environ["HOROVOD_LOCAL_RANK"], number("CROSS_RANK"), number("CROSS_SIZE")))
)";

TEST(MpiTest, HorovodMeetsOverGlooToo) {
  nlohmann::json spec = ProgramSpec(2, {"python3", "-c", kHorovodRank});
  spec["program"]["framework"] = "Horovod";
  spec["replicas"] = 2;
  TwoLaunchers runs(spec);
  ASSERT_EQ(runs.first->Wait(), 0) << runs.first->launcher().err();
  ASSERT_EQ(runs.second->Wait(), 0) << runs.second->launcher().err();
  EXPECT_THAT(runs.first->Log(1),
              HasSubstr("global_0 global_1 global_2 global_3 | local_machine-00 local_machine-01 | "
                        "cross_10 cross_11\n"));
  EXPECT_THAT(runs.second->Log(2), HasSubstr("| local_machine-10 local_machine-11 | cross_00 cross_01\n"));
}

}  // namespace
}  // namespace lockstep::testing
