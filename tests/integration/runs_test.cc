#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/launcher_process.h"

// What `lockstep runs` knows of runs that are over.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kDigits[] = R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: digits}
spec:
  processesPerReplica: 2
  devices: {type: CPU}
  trainer:
    data: {format: Digits, samples: 640, testSamples: 64}
    model: {layers: [{type: Dense, units: 10}], loss: SparseCategoricalCrossentropy, metrics: [Accuracy]}
    optimizer: {type: SGD}
    batchSize: 64
    epochs: 2
)";

class RunsTest : public ::testing::Test {
 protected:
  // Its exit code; out_ and err_ are what it wrote.
  int Lockstep(const std::vector<std::string>& arguments) {
    LauncherProcess process(
        {.arguments = arguments, .environment = {{"XDG_STATE_HOME", folder_.path().string()}}});
    const int code = process.Wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }
  TemporaryFolder folder_;
  std::string out_, err_;
};

TEST_F(RunsTest, ListsShowsAndDrawsWhatRan) {
  EXPECT_EQ(Lockstep({"runs", "list"}), 0);
  EXPECT_EQ(out_, "no runs yet\n");
  ASSERT_EQ(Lockstep({"run", folder_.Write("job.yaml", kDigits)}), 0) << err_;

  EXPECT_EQ(Lockstep({"runs", "list"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("\ndigits/2"));
  EXPECT_THAT(out_, HasSubstr("Succeeded  20 "));
  EXPECT_EQ(Lockstep({"runs", "list", "--json"}), 0);
  const auto all = nlohmann::json::parse(out_);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["status"]["progress"]["step"], 20);

  EXPECT_EQ(Lockstep({"runs", "show", "digits"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("digits in default: Succeeded, 0 restarts, took "));
  EXPECT_THAT(out_, HasSubstr("  Evaluation   split test, epoch 1, "));
  const std::string name = all[0]["run"];
  EXPECT_EQ(Lockstep({"runs", "show", name}), 0) << err_;

  const std::string picture = (folder_.path() / "loss.svg").string();
  EXPECT_EQ(Lockstep({"runs", "plot", "digits", name, "-o", picture}), 0) << err_;
  EXPECT_THAT(ReadText(picture), HasSubstr("<polyline"));
}

TEST_F(RunsTest, ARunWhoseLauncherWasKilledIsLost) {
  std::string manifest = kDigits;
  manifest.replace(manifest.find("epochs: 2"), 9, "epochs: 100000");
  LauncherProcess job({.arguments = {"run", folder_.Write("job.yaml", manifest)},
                       .environment = {{"XDG_STATE_HOME", folder_.path().string()}}});
  EXPECT_TRUE(WaitUntil([&] {
    Lockstep({"runs", "list"});
    return out_.find("  Running") != std::string::npos;
  })) << out_;
  job.Signal(SIGKILL);
  job.Wait();
  EXPECT_TRUE(WaitUntil([&] {
    Lockstep({"runs", "list"});
    return out_.find("  Lost") != std::string::npos;
  })) << out_;
}

TEST_F(RunsTest, WhatIsNotThereIsAnError) {
  EXPECT_EQ(Lockstep({"runs", "show", "nothing"}), 1);
  EXPECT_THAT(err_,
              HasSubstr("no run \"nothing\" on this machine; lockstep runs list shows those there are"));
  EXPECT_EQ(Lockstep({"runs", "plot", folder_.path().string(), "-o", "x.svg"}), 1);
  EXPECT_THAT(err_, HasSubstr("is no run's folder"));
  EXPECT_EQ(Lockstep({"runs"}), 2);
}

}  // namespace
}  // namespace lockstep::testing
