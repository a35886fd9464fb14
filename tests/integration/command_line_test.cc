#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/support/launcher_process.h"

// What a user types, and what comes back.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] = R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata:
  name: one
spec:
  processesPerReplica: 3
  devices: {type: CPU}
  trainer:
    model:
      layers:
      - {type: Dense, units: 10}
      loss: SparseCategoricalCrossentropy
    optimizer: {type: SGD}
    batchSize: 255
)";

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

class CommandLineTest : public ::testing::Test {
 protected:
  int Run(std::vector<std::string> arguments) {
    LauncherProcess process({.arguments = std::move(arguments)});
    const int code = process.Wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }
  TemporaryFolder folder_;
  std::string out_, err_;
};

TEST_F(CommandLineTest, ValidateAcceptsAGoodManifest) {
  EXPECT_EQ(Run({"validate", folder_.Write("job.yaml", kJob)}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("one is valid"));
}

TEST_F(CommandLineTest, ValidateTellsAllErrorsAtOnceWithTheirPlaces) {
  std::string text = Replaced(kJob, "type: SGD", "type: SDG");
  text = Replaced(text, "units: 10", "unit: 10");
  const std::string file = folder_.Write("job.yaml", text);
  EXPECT_EQ(Run({"validate", file}), 2);
  EXPECT_THAT(err_, HasSubstr(file + ":11:"));
  EXPECT_THAT(err_, HasSubstr(file + ":13:"));
  EXPECT_THAT(err_, HasSubstr("did you mean"));
}

TEST_F(CommandLineTest, EveryExampleIsValid) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/manifests/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    EXPECT_EQ(Run({"validate", entry.path().string()}), 0) << err_;
    ++seen;
  }
  EXPECT_GE(seen, 3);
}

TEST_F(CommandLineTest, DryRunShowsWhatEachProcessWouldGet) {
  EXPECT_EQ(Run({"run", "--dry-run", "-o", "json", folder_.Write("job.yaml", kJob)}), 0) << err_;
  const auto plan = nlohmann::json::parse(out_, nullptr, false);
  ASSERT_TRUE(plan.is_object()) << out_;
  ASSERT_EQ(plan["processes"].size(), 3u);
  EXPECT_EQ(plan["processes"][2]["environment"]["RANK"], "2");
  EXPECT_EQ(plan["processes"][2]["environment"]["WORLD_SIZE"], "3");
}

TEST_F(CommandLineTest, RunRefusesABatchThatDoesNotDivide) {
  const std::string file = folder_.Write("job.yaml", Replaced(kJob, "batchSize: 255", "batchSize: 256"));
  EXPECT_EQ(Run({"run", "--run-dir", folder_.File("run"), file}), 2);
  EXPECT_THAT(err_, HasSubstr("256"));
  EXPECT_THAT(err_, HasSubstr("255"));
}

TEST_F(CommandLineTest, RunRefusesByNameWhatIsNotBuilt) {
  const std::string file =
      folder_.Write("job.yaml", Replaced(kJob, "  trainer:", "  suspend: true\n  trainer:"));
  EXPECT_EQ(Run({"run", "--run-dir", folder_.File("run"), file}), 2);
  EXPECT_THAT(err_, HasSubstr("spec.suspend"));
}

TEST_F(CommandLineTest, DevicesAreShownForPeopleAndPrograms) {
  EXPECT_EQ(Run({"devices"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("CPU"));
  EXPECT_EQ(Run({"devices", "-o", "json"}), 0) << err_;
  EXPECT_TRUE(nlohmann::json::parse(out_, nullptr, false).is_object()) << out_;
}

TEST_F(CommandLineTest, SchemaIsJson) {
  EXPECT_EQ(Run({"schema"}), 0) << err_;
  EXPECT_TRUE(nlohmann::json::parse(out_, nullptr, false).contains("$schema"));
}

TEST_F(CommandLineTest, WrongUsageIsTwo) {
  EXPECT_EQ(Run({}), 2);
  EXPECT_EQ(Run({"dance"}), 2);
  EXPECT_EQ(Run({"run"}), 2);
  EXPECT_EQ(Run({"run", folder_.File("not-there.yaml")}), 2);
  EXPECT_THAT(err_, HasSubstr("not-there.yaml"));
  EXPECT_EQ(Run({"run", folder_.Write("job.yaml", kJob), "--replica", "3"}), 2);
  EXPECT_THAT(err_, HasSubstr("--replica 3"));
}

TEST_F(CommandLineTest, ABusyPortIsSaidSo) {
  JobRun first(ShellSpec(1, "exec sleep 1000"));
  ASSERT_EQ(first.Pids().size(), 1u);
  const std::string address = ReadText(first.File("http-address"));
  auto spec = ShellSpec(1, "true");
  spec["http"] = {{"port", std::stoi(address.substr(address.rfind(':') + 1))}};
  JobRun second(spec);
  EXPECT_NE(second.Wait(), 0);
  EXPECT_THAT(second.launcher().err(), HasSubstr(address.substr(0, address.size() - 1)));
}

TEST_F(CommandLineTest, InitWritesWhatThisMachineCanRun) {
  const std::string file = folder_.File("first.yaml");
  EXPECT_EQ(Run({"init", "-o", file}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("lockstep run " + file));
  EXPECT_EQ(Run({"validate", file}), 0) << err_;
  EXPECT_EQ(Run({"run", file, "--dry-run"}), 0) << err_;
  EXPECT_THAT(ReadText(file), HasSubstr("# This machine has "));
  EXPECT_EQ(Run({"init", "-o", file}), 2);
  EXPECT_THAT(err_, HasSubstr("--force"));

  EXPECT_EQ(Run({"init", "--force", "-o", file, "--", "sh", "-c", "echo \"hello\nfrom $RANK\""}), 0) << err_;
  EXPECT_EQ(Run({"run", file, "--run-dir", folder_.File("run")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("[rank 0] from 0"));
}

TEST_F(CommandLineTest, DoctorLooksAtThisMachine) {
  // (It may be anything but silent about it.)
  const int code = Run({"doctor", "-o", "json"});
  EXPECT_THAT(code, ::testing::AnyOf(0, 3)) << err_;
  const auto findings = nlohmann::json::parse(out_, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(findings.is_array()) << out_;
  bool fault = false;
  std::string about;
  for (const auto& finding : findings) {
    fault = fault || finding["level"] == "Fault";
    about += finding["about"].get<std::string>() + ",";
  }
  EXPECT_EQ(code, fault ? 3 : 0) << out_;
  EXPECT_THAT(about, HasSubstr("processors,memory,/dev/shm,open files,locked memory,disk,clock,"));
  EXPECT_EQ(Run({"doctor", "--peer", "127.0.0.1:1"}), 3) << out_;
  EXPECT_THAT(out_, HasSubstr("peer 127.0.0.1:1"));
}

TEST_F(CommandLineTest, SaysItsVersionToPeopleAndPrograms) {
  EXPECT_EQ(Run({"version"}), 0);
  const std::string text = out_;
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_EQ(out_, text);
  EXPECT_EQ(Run({"version", "-o", "json"}), 0);
  const auto version = nlohmann::json::parse(out_);
  EXPECT_EQ("lockstep " + version["version"].get<std::string>() + "\n", text);
  EXPECT_EQ(version["apiVersion"], "lockstep.dev/v1alpha1");
}

}  // namespace
}  // namespace lockstep::testing
