#include "launcher/operator/observe.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/operator/job_status.h"

namespace lockstep::op {
namespace {

using Json = nlohmann::json;

TEST(ObserveTest, ReadsAPodThatFailed) {
  const ChildPod pod = ReadChildPod(Json::parse(R"({
    "metadata": {"name": "digits-worker-1-3-abcde", "uid": "u1",
      "labels": {"lockstep.dev/attempt": "1", "batch.kubernetes.io/job-completion-index": "3"},
      "ownerReferences": [{"kind": "Job", "uid": "j1", "controller": true}]},
    "status": {"phase": "Failed", "podIP": "10.1.2.3",
      "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "DisruptionTarget", "status": "True"}],
      "containerStatuses": [{"name": "other", "state": {"terminated": {"exitCode": 9}}},
        {"name": "lockstep", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "m"}}}]}})"));
  EXPECT_EQ(pod.attempt, 1);
  EXPECT_EQ(pod.index, 3);
  EXPECT_EQ(pod.job_uid, "j1");
  EXPECT_EQ(pod.phase, PodPhase::kFailed);
  EXPECT_TRUE(pod.scheduled);
  EXPECT_TRUE(pod.disrupted);
  EXPECT_EQ(pod.exit_code, 137);
  EXPECT_EQ(pod.exit_reason, "OOMKilled");
  EXPECT_FALSE(pod.delete_by);
}

TEST(ObserveTest, ReadsWhyAnInitContainerKeepsTheAgentFromStarting) {
  const auto pod = [](const std::string& state) {
    return ReadChildPod(Json::parse(
        R"({"status": {"containerStatuses": [{"name": "lockstep", "state": {"waiting": {"reason": "PodInitializing"}}}],
            "initContainerStatuses": [{"name": "lockstep-inject", "state": {)" +
        state + "}}]}}"));
  };
  const ChildPod pulls = pod(R"("waiting": {"reason": "ImagePullBackOff", "message": "no such image"})");
  EXPECT_EQ(pulls.waiting, "ImagePullBackOff");
  EXPECT_EQ(pulls.waiting_message, "no such image");
  const ChildPod failed =
      pod(R"("terminated": {"exitCode": 1, "reason": "Error", "message": "lockstep: no space\n"})");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_EQ(failed.exit_message, "lockstep-inject: lockstep: no space");
  const ChildPod done = pod(R"("terminated": {"exitCode": 0, "reason": "Completed"})");
  EXPECT_EQ(done.exit_code, std::nullopt);
  EXPECT_EQ(done.waiting, "PodInitializing");
}

TEST(ObserveTest, TakesWhatItDoesNotKnowAsNotThere) {
  for (const char* text : {"null", "[]", "5", R"({"metadata":5,"status":[],"spec":"x"})",
                           R"({"metadata":{"labels":{"lockstep.dev/attempt":"-7","lockstep.dev/role":8}},
                               "status":{"conditions":{},"active":"many","startTime":"soon"}})"}) {
    const Json object = Json::parse(text);
    EXPECT_EQ(ReadChildPod(object).index, 0);
    EXPECT_EQ(ReadChildJob(object).attempt, 0);
    EXPECT_EQ(ReadTrainingJob(object).status.phase, std::nullopt);
    EXPECT_EQ(OwnerUid(object, "Job"), "");
  }
  EXPECT_FALSE(ReadAgentReport("not json"));
  EXPECT_FALSE(ReadVerdict("Segmentation fault"));
}

TEST(ObserveTest, KeepsNoTextOfAnyLength) {
  Json pod = {{"status",
               {{"conditions", Json::array({{{"type", "PodScheduled"},
                                             {"status", "False"},
                                             {"message", std::string(100'000, 'x')}}})}}}};
  EXPECT_LT(ReadChildPod(pod).unschedulable.size(), 1100U);
}

TEST(ObserveTest, ReadsTheAgentsStatus) {
  const auto report = ReadAgentReport(R"({"phase": "Restarting", "restarts": 2,
    "progress": {"step": 120, "totalSteps": 392, "percentage": 30, "estimatedRemainingSeconds": 41,
                 "samplesPerSecond": "90321", "epoch": 0, "loss": "0.31", "lastUpdatedTime": "2026-01-31T12:00:00Z"},
    "lastFailure": {"replica": 0, "process": 2, "rank": 2, "exitCode": 137, "reason": "OOMKilled", "message": "m"}})");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->restarting);
  EXPECT_EQ(report->restarts, 2);
  EXPECT_EQ(report->progress->step, 120);
  EXPECT_EQ(report->progress->total_steps, 392);
  EXPECT_EQ(report->progress->samples_per_second, "90321");
  EXPECT_EQ(TimeText(report->progress->last_updated), "2026-01-31T12:00:00Z");
  EXPECT_EQ(report->last_failure->process, 2);
}

TEST(JobStatusTest, ComesBackAsItWasWritten) {
  JobStatus status;
  status.phase = Phase::kRestarting;
  status.observed_generation = 7;
  status.attempt = 2;
  status.restarts = 3;
  status.replicas = {.desired = 4, .active = 3, .ready = 2, .succeeded = 1, .failed = 5};
  status.start_time = Time(std::chrono::seconds(1'800'000'000));
  status.progress = JobProgress{.step = 5, .total_steps = 10, .percentage = 50, .loss = "0.1"};
  status.last_failure = LastFailure{.replica = 1, .exit_code = 3, .reason = "Error", .message = "x"};
  status.Set(kRunning, true, "PodsRunning", "all replicas run", *status.start_time);
  EXPECT_EQ(ReadStatus(StatusJson(status)), status);
  EXPECT_EQ(ReadStatus(StatusJson({})), JobStatus());
}

TEST(JobStatusTest, TakesAwayInAPatchWhatIsNotThere) {
  JobStatus status;
  status.progress = JobProgress{.step = 5};
  const Json patch = StatusPatch(status);
  EXPECT_TRUE(patch.at("startTime").is_null());
  EXPECT_TRUE(patch.at("lastFailure").is_null());
  EXPECT_TRUE(patch.at("progress").at("loss").is_null());
  EXPECT_EQ(patch.at("progress").at("step"), 5);
  EXPECT_FALSE(StatusJson(status).contains("startTime"));
}

TEST(JobStatusTest, MovesTheTimeOfAConditionOnlyWithItsStatus) {
  const Time start(std::chrono::seconds(1'800'000'000));
  JobStatus status;
  status.Set(kRunning, false, "PodsStarting", "", start);
  status.Set(kRunning, false, "PodsWaiting", "ImagePullBackOff", start + std::chrono::seconds(5));
  EXPECT_EQ(status.Find(kRunning)->last_transition, start);
  status.Set(kRunning, true, "PodsRunning", "", start + std::chrono::seconds(9));
  EXPECT_EQ(status.Find(kRunning)->last_transition, start + std::chrono::seconds(9));
  EXPECT_EQ(status.conditions.size(), 1U);
}

}  // namespace
}  // namespace lockstep::op
