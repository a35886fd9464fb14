#include "launcher/placement/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/placement/yaml_text.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using testing::Facts;
using testing::GpuMachine;
using ::testing::HasSubstr;
using testing::kGiB;
using testing::Machine;
using testing::MigMachine;
using ::testing::Not;
using testing::ProgramJob;
using testing::Uuid;

TEST(ToYamlTest, WritesBlocksAndOneLineLists) {
  const Json document = {
      {"a", 1},
      {"list", {1, "x", nullptr}},
      {"empty", Json::array()},
      {"none", Json::object()},
      {"items", Json::array({{{"name", "b"}, {"deep", {{"c", true}}}}, Json::array({Json::object()}), 7})}};
  EXPECT_EQ(ToYaml(document),
            "a: 1\n"
            "list: [1, \"x\", null]\n"
            "empty: []\n"
            "none: {}\n"
            "items:\n"
            "  - name: \"b\"\n"
            "    deep:\n"
            "      c: true\n"
            "  - - {}\n"
            "  - 7\n");
}

TEST(ToYamlTest, QuotesWhatYamlWouldReadOtherwise) {
  const Json document = {{"plain_KEY_1", "on"}, {"on", "012"}, {"Null", "a: b # c"}, {"1a", "\t\"\\\n"},
                         {"", "\x7f\xc2\x85"},  {"ä", "\xff"}, {"a b", "-"}};
  EXPECT_EQ(ToYaml(document),
            "plain_KEY_1: \"on\"\n"
            "\"on\": \"012\"\n"
            "\"Null\": \"a: b # c\"\n"
            "\"1a\": \"\\t\\\"\\\\\\n\"\n"
            "\"\": \"\\x7f\\x85\"\n"
            "\"ä\": \"\xef\xbf\xbd\"\n"
            "\"a b\": \"-\"\n");
}

Plan MustPlan(const spec::TrainingJob& job, const Inventory& inventory) {
  GenerationFacts facts = Facts();
  facts.inherited = {{"AWS_SECRET_ACCESS_KEY", "inherited-secret"}};
  auto plan = Assign(job, {.inventory = inventory}, facts);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : Plan{};
}

TEST(RenderPlanTest, ShowsEachProcess) {
  spec::TrainingJob job = ProgramJob(spec::Framework::kNone);
  job.program->working_directory = "/srv";
  const Json json = Json::parse(RenderPlan(MustPlan(job, Machine(1, 2)), PlanFormat::kJson));
  EXPECT_EQ(json["worldSize"], 2);
  ASSERT_EQ(json["processes"].size(), 2u);
  const Json& process = json["processes"][1];
  EXPECT_EQ(process["rank"], 1);
  EXPECT_EQ(process["devices"], Json({"CPU:1"}));
  EXPECT_EQ(process["cpus"], "1");
  EXPECT_EQ(process["threads"], 1);
  EXPECT_EQ(process["command"], Json({"python3", "train.py"}));
  EXPECT_EQ(process["workingDirectory"], "/srv");
  EXPECT_EQ(process["environment"]["RANK"], "1");
  EXPECT_EQ(process["environment"]["LOCKSTEP_TOKEN_FILE"], "/run/token");
}

TEST(RenderPlanTest, HidesSecretsAndWhatIsInherited) {
  spec::TrainingJob job = ProgramJob(spec::Framework::kNone);
  job.program->environment = {{"HF_TOKEN", "hf_abc"}, {"Api_Key", "k-123"}, {"MODE", "fast"}};
  for (const PlanFormat format : {PlanFormat::kYaml, PlanFormat::kJson}) {
    const std::string text = RenderPlan(MustPlan(job, Machine(1, 2)), format);
    EXPECT_THAT(text, HasSubstr("(hidden)"));
    EXPECT_THAT(text, HasSubstr("fast"));
    for (const char* secret : {"hf_abc", "k-123", "inherited-secret"})
      EXPECT_THAT(text, Not(HasSubstr(secret)));
  }
}

TEST(RenderPlanTest, SaysTheSameInYaml) {
  const std::string text =
      RenderPlan(MustPlan(ProgramJob(spec::Framework::kNone), Machine(1, 1)), PlanFormat::kYaml);
  EXPECT_THAT(
      text,
      HasSubstr(
          "worldSize: 1\nphysicalDevices: 1\nlogicalDevices: 1\nprocesses:\n"
          "  - rank: 0\n    localRank: 0\n    role: \"worker\"\n    roleRank: 0\n    devices: [\"CPU:0\"]\n"
          "    cpus: \"any\"\n    threads: 1\n    memory:\n      policy: \"Growth\"\n"));
  EXPECT_THAT(text, HasSubstr("\n    environment:\n      RANK: \"0\"\n"));
  EXPECT_THAT(text, HasSubstr("\nnotices: []\n"));
}

TEST(DescribePlacementTest, CountsDevicesAsTensorFlowDoes) {
  spec::TrainingJob job = ProgramJob(spec::Framework::kJax);
  job.roles[0].devices.visible = {"0"};
  EXPECT_THAT(DescribePlacement(MustPlan(job, GpuMachine(2))),
              ElementsAre("rank 0 on " + Uuid(0) + ", bound to CPUs 0-3, 4 threads"));
  EXPECT_EQ(CountDevices(MustPlan(job, GpuMachine(2))), "2 physical GPUs, 1 logical GPU");
  job.roles[0].devices.virtual_devices = {.per_device = 2, .memory_limit = kGiB};
  EXPECT_THAT(DescribePlacement(MustPlan(job, GpuMachine(2))),
              ElementsAre("rank 0 on " + Uuid(0) + ", bound to CPUs 0-1, 2 threads, at most 1 GiB",
                          "rank 1 on " + Uuid(0) + ", bound to CPUs 2-3, 2 threads, at most 1 GiB"));
  EXPECT_EQ(CountDevices(MustPlan(job, GpuMachine(2))), "2 physical GPUs, 2 logical GPUs");
  EXPECT_EQ(CountDevices(MustPlan(job, GpuMachine(1))), "1 physical GPU, 2 logical GPUs");
}

TEST(RenderInventoryTest, TellsPeopleWhatThereIs) {
  Inventory inventory = MigMachine(1);
  inventory.cpu_model = "AMD EPYC";
  inventory.cpu_quota = 1.5;
  inventory.memory_limit = 2 * kGiB;
  inventory.gpus[1].error = "GPU is lost";
  inventory.notes = {"something"};
  const std::string text = RenderInventoryTable(inventory);
  EXPECT_THAT(text, HasSubstr("CPU       8 cores (CPUs 0-7) on 2 NUMA nodes, AMD EPYC\n"));
  EXPECT_THAT(text, HasSubstr("Quota     1.5 CPUs by cgroup\n"));
  EXPECT_THAT(text, HasSubstr("Threads   1 for arithmetic\n"));
  EXPECT_THAT(text, HasSubstr("Memory    2 GiB by cgroup, of 64 GiB\n"));
  EXPECT_THAT(text, HasSubstr("GPU 0     NVIDIA H100 80GB HBM3, 40 GiB, " + Uuid(0)));
  EXPECT_THAT(text, HasSubstr("MIG mode with 1 slice\n"));
  EXPECT_THAT(text, HasSubstr("MIG 1g.5gb, 5 GiB, MIG-"));
  EXPECT_THAT(text, HasSubstr("cannot be used: GPU is lost\n"));
  EXPECT_THAT(text, HasSubstr("Note      something\n"));
}

TEST(RenderInventoryTest, TellsProgramsTheSame) {
  const Json json = Json::parse(RenderInventoryJson(MigMachine(2)));
  EXPECT_EQ(json["usableCores"], 8);
  EXPECT_EQ(json["cpuQuota"], nullptr);
  EXPECT_EQ(json["cpus"].size(), 8u);
  EXPECT_EQ(json["gpus"][0]["slices"].size(), 2u);
  EXPECT_EQ(json["gpus"][0]["mig"], true);
  EXPECT_EQ(json["gpus"][1]["memoryBytes"], 40 * kGiB);
}

}  // namespace
}  // namespace lockstep::placement
