#include "launcher/job/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::job {
namespace {

process::Launch Worker() {
  return {.rank = 3,
          .local_rank = 1,
          .role = "worker",
          .own_trainer = true,
          .command = {"/bin/trainer"},
          .environment = {{"PATH", "/bin"},
                          {"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"MASTER_PORT", "4000"},
                          {"CUDA_VISIBLE_DEVICES", "GPU-1"},
                          {"LOCKSTEP_GENERATION", "0"},
                          {"LOCKSTEP_MEMORY_LIMIT", "1000"}},
          .working_directory = "/tmp",
          .cpus = {2, 3}};
}

process::Launch With(const std::string& name, const std::string& value) {
  process::Launch launch = Worker();
  std::erase_if(launch.environment, [&](const auto& variable) { return variable.first == name; });
  launch.environment.emplace_back(name, value);
  return launch;
}

TEST(PlaceTest, WhoElseTakesPartChangesNoPlace) {
  EXPECT_TRUE(SamePlace(Worker(), Worker()));
  process::Launch renamed = Worker();
  renamed.rank = 1;
  renamed.role_rank = 1;
  EXPECT_TRUE(SamePlace(Worker(), renamed));
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT", "LOCKSTEP_GENERATION", "LOCKSTEP_INCARNATION", "LOCKSTEP_RUN",
        "LOCKSTEP_STORE_ADDRESS", "LOCKSTEP_ROLE_RANK", "LOCKSTEP_ROLE_SIZE", "LOCKSTEP_ROLES", "TF_CONFIG",
        "JAX_PROCESS_ID", "LOCKSTEP_TRACE_FILE"}) {
    EXPECT_TRUE(SamePlace(Worker(), With(name, "7"))) << name;
  }
}

TEST(PlaceTest, ADeviceAShareOrAnythingElseDoes) {
  for (const char* name : {"LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "LOCKSTEP_MEMORY_LIMIT", "LOCKSTEP_DEVICE",
                           "OMP_NUM_THREADS", "LOCKSTEP_TRAINER_CONFIG", "PATH", "ANYTHING"}) {
    EXPECT_FALSE(SamePlace(Worker(), With(name, "7"))) << name;
    EXPECT_FALSE(SamePlace(With(name, "7"), Worker())) << name;
  }
  process::Launch other = Worker();
  other.role = "chief";
  EXPECT_FALSE(SamePlace(Worker(), other));
  other = Worker();
  other.command = {"/bin/other"};
  EXPECT_FALSE(SamePlace(Worker(), other));
  other = Worker();
  other.cpus = {2};
  EXPECT_FALSE(SamePlace(Worker(), other));
  other = Worker();
  other.working_directory = "";
  EXPECT_FALSE(SamePlace(Worker(), other));
}

TEST(PlaceTest, TheContractsEnvironmentIsWhatTheLauncherSets) {
  placement::ProcessPlan plan;
  plan.changed = {{"RANK", "3"}, {"LOCKSTEP_JOB", "digits"}, {"MINE", "1"}, {"SECRET", "1"}};
  plan.from_manifest = {"MINE"};
  plan.from_files = {{"SECRET", "job.env"}};
  plan.environment = {{"PATH", "/bin"}, {"RANK", "3"}, {"LOCKSTEP_JOB", "digits"}, {"MINE", "1"}};
  EXPECT_THAT(ContractEnvironment(plan),
              ::testing::UnorderedElementsAre(
                  ::testing::Pair("RANK", "3"), ::testing::Pair("LOCKSTEP_JOB", "digits"),
                  ::testing::Pair("LOCKSTEP_EVENTS_FD", "3"), ::testing::Pair("LOCKSTEP_CONTROL_FD", "4")));
}

}  // namespace
}  // namespace lockstep::job
