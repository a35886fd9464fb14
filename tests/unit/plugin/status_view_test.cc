#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "launcher/plugin/status_text.h"
#include "tests/unit/plugin/objects.h"

namespace lockstep::plugin {
namespace {

using ::testing::HasSubstr;
using testing::Json;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr op::Time kNow = op::Time(std::chrono::seconds(1'769'860'920));  // 2026-01-31T12:02:00Z

JobView Running() {
  JobView view{.job = op::ReadTrainingJob(testing::Job())};
  for (const int index : {0, 1}) {
    view.pods.push_back(ReadPod(testing::Pod(index)));
    ReadAgent(testing::Agent(index, index == 1 ? "0.0025" : "0.0010"), view.pods.back());
  }
  return view;
}

TEST(StatusViewTest, IsOneScreenOfTheJobAndItsRanks) {
  EXPECT_EQ(RenderStatus(Running(), kNow, 40),
            "mnist in team: Running, attempt 1, 1 restart, for 2 min 00 s\n"
            "pods: 2 of 2 ready\n"
            "step 120 of 400 (30 %), 90321 samples/s, loss 0.31, 1 min 15 s left, as of 2 s ago\n"
            "\n"
            "RANK  REPLICA   NODE    STATE     DEVICE  STEP  A STEP   OF ITS OWN  MEMORY\n"
            "0     worker-0  node-0  Training  GPU     120   4.00 ms  1.00 ms     1.0 GiB\n"
            "1     worker-0  node-0  Training  GPU     120   4.00 ms  1.00 ms     1.0 GiB\n"
            "2     worker-1  node-1  Training  GPU     120   4.00 ms  2.50 ms     1.0 GiB\n"
            "3     worker-1  node-1  Training  GPU     120   4.00 ms  1.00 ms     1.0 GiB\n"
            "\n"
            "slowest: rank 2 (worker-1 on node-1): 2.50 ms of its own a step, 2.50 times the median\n"
            "last failure: replica 1, process 0: OOMKilled (exit code 137): bad?[2J\n");
}

TEST(StatusViewTest, ShowsAtMostTheLinesThatThereAreAndTheSlowOnesAmongThem) {
  const std::string text = RenderStatus(Running(), kNow, 2);
  EXPECT_THAT(text, HasSubstr("\n2     worker-1"));
  EXPECT_THAT(text, HasSubstr("… and 2 more\n"));
  EXPECT_THAT(text, Not(HasSubstr("\n3 ")));
}

TEST(StatusViewTest, SaysWhatAJobWaitsFor) {
  Json job = testing::Job("Pending");
  job["status"].erase("startTime");
  job["status"].erase("progress");
  job["status"].erase("lastFailure");
  job["status"]["conditions"] = {{{"type", "Scheduled"},
                                  {"status", "False"},
                                  {"reason", "Unschedulable"},
                                  {"message", "0/3 nodes are available"},
                                  {"lastTransitionTime", "2026-01-31T12:00:00Z"}}};
  JobView view{.job = op::ReadTrainingJob(job)};
  Json pod = testing::Pod(0, 1, "Pending");
  pod["status"]["conditions"] = {{{"type", "PodScheduled"}, {"status", "False"}, {"message", "no room"}}};
  pod["spec"].erase("nodeName");
  view.pods = {ReadPod(pod)};
  const std::string text = RenderStatus(view, kNow, 40);
  EXPECT_THAT(text, HasSubstr("Scheduled is not so: Unschedulable: 0/3 nodes are available\n"));
  EXPECT_THAT(text, HasSubstr("worker-0  Unscheduled\n"));
  EXPECT_THAT(text, Not(HasSubstr("slowest")));
}

TEST(StatusViewTest, AJobThatNoOperatorHasSeenIsAScreenToo) {
  Json job = testing::Job();
  job.erase("status");
  EXPECT_EQ(RenderStatus({.job = op::ReadTrainingJob(job)}, kNow, 40),
            "mnist in team: not seen by an operator yet, attempt 0, 0 restarts\npods: 0 of 0 ready\n");
}

TEST(StatusViewTest, SilentAgentsAreCountedByTheirReason) {
  JobView view = Running();
  for (PodView& pod : view.pods) {
    pod.ranks.clear();
    pod.report.reset();
    pod.silent = "you may not get pods/proxy";
  }
  const std::string text = RenderStatus(view, kNow, 40);
  EXPECT_THAT(text, HasSubstr("no word from 2 agents: you may not get pods/proxy\n"));
  EXPECT_THAT(text, HasSubstr("step 100 of 400 (25 %), as of 10 s ago"));  // the operator's word
  EXPECT_THAT(text, HasSubstr("worker-1  node-1  Ready\n"));
}

TEST(StatusViewTest, SaysWhichReplicasTheJobGoesOnWithout) {
  JobView view{.job = op::ReadTrainingJob(testing::Job()), .pods = {ReadPod(testing::Pod(0))}};
  Json agent = Json::parse(testing::Agent(0));
  agent["replicas"] = {{"desired", 4}, {"running", 2}, {"leftOut", {1, 3}}};
  ReadAgent(agent.dump(), view.pods[0]);
  EXPECT_THAT(RenderStatus(view, kNow, 40), HasSubstr("\ngoes on without replica 1, 3\n"));
}

TEST(StatusViewTest, WhatAnAgentDoesNotSayIsNotMadeUp) {
  JobView view = Running();
  for (PodView& pod : view.pods) {
    for (RankView& rank : pod.ranks) rank.collective_seconds.reset();
  }
  const std::string text = RenderStatus(view, kNow, 40);
  EXPECT_THAT(text, HasSubstr("120   4.00 ms  1.0 GiB\n"));
  EXPECT_THAT(text, Not(HasSubstr("slowest")));
}

TEST(StatusViewTest, ALauncherOfNoClusterIsAScreenToo) {
  Json launcher = Json::parse(testing::Agent(0, "0.0025"));
  launcher["name"] = "mnist";
  launcher["namespace"] = "default";
  launcher["ranks"][1]["role"] = "ps";
  const std::optional<JobView> view = ReadLauncher(launcher.dump());
  ASSERT_TRUE(view);
  const std::string text = RenderStatus(*view, kNow, 40);
  EXPECT_THAT(text, HasSubstr("mnist in default: Running, 0 restarts\nstep 120 of 400 (30 %), "));
  EXPECT_THAT(text, HasSubstr("\nRANK  REPLICA   STATE     DEVICE  STEP  A STEP   OF ITS OWN  MEMORY\n"
                              "1     ps-0      Training"));
  EXPECT_THAT(text, HasSubstr("\n0     worker-0  Training  GPU     120   4.00 ms  2.50 ms     1.0 GiB\n"));
  EXPECT_FALSE(ReadLauncher("<html>"));
}

TEST(StatusViewTest, WhatIsNoStatusIsSaidAndNotShown) {
  PodView pod = ReadPod(testing::Pod(0));
  ReadAgent("<html>", pod);
  EXPECT_FALSE(pod.silent.empty());
  EXPECT_TRUE(pod.ranks.empty());
}

TEST(StatusViewTest, OfEachReplicaTheNewestPodIsShown) {
  Json going = testing::Pod(0);
  going["metadata"]["name"] = "going";
  going["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z";
  const auto pods = Newest(
      {ReadPod(testing::Pod(1)), ReadPod(going), ReadPod(testing::Pod(0)), ReadPod(testing::Pod(0, 0))});
  ASSERT_EQ(pods.size(), 2u);
  EXPECT_EQ(pods[0].pod.name, "mnist-worker-1-0");
  EXPECT_EQ(pods[1].pod.name, "mnist-worker-1-1");
  EXPECT_EQ(pods[0].http_port, 8081);
}

}  // namespace
}  // namespace lockstep::plugin
