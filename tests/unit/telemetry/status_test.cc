#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/telemetry/status_document.h"

namespace lockstep::telemetry {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using std::chrono::system_clock;

JobSnapshot Example() {
  JobSnapshot snapshot;
  snapshot.description = {.name = "mnist",
                          .namespace_name = "team",
                          .strategy = "Mirrored",
                          .framework = "Lockstep",
                          .world_size = 2};
  snapshot.phase = JobPhase::kRunning;
  snapshot.generation = 1;
  snapshot.restarts = 1;
  snapshot.start_time = system_clock::time_point(seconds(1'700'000'000));
  snapshot.elapsed_seconds = 61;
  RankSnapshot rank;
  rank.state = RankState::kRunning;
  rank.pid = 4711;
  rank.phase = RankPhase::kTraining;
  rank.step = 120;
  rank.step_seconds = 0.0028;
  rank.collective_seconds = 0.0004;
  rank.memory_bytes = 1 << 20;
  snapshot.ranks.push_back(rank);
  rank.identity = {.rank = 1, .role = "worker", .replica = 0, .process = 1};
  rank.state = RankState::kExited;
  rank.exit_code = 137;
  rank.pid = 0;
  snapshot.ranks.push_back(rank);
  Progress progress;
  progress.step = 120;
  progress.total_steps = 392;
  progress.percentage = 30;
  progress.remaining_seconds = 40.5;
  progress.samples_per_second = 90321.4;
  progress.loss = 0.31;
  progress.loss_average = 0.33;
  progress.accuracy = 0.9612;
  progress.last_updated = system_clock::time_point(seconds(1'700'000'060));
  snapshot.progress = progress;
  snapshot.goodput = 0.975;
  snapshot.time.productive = 58.5;
  snapshot.time.lost[static_cast<size_t>(Loss::kRestart)] = 1.5;
  snapshot.straggler = RankBalance::Straggler{.rank = 1, .delay = 0.0125};
  snapshot.ranks.back().delay = 0.0125;
  snapshot.last_failure = Failure{.rank = 1,
                                  .process = 1,
                                  .exit_code = 137,
                                  .reason = "OOMKilled",
                                  .message = "<script>alert('x')</script>\xff",
                                  .time = system_clock::time_point(seconds(1'700'000'030))};
  return snapshot;
}

TEST(StatusDocumentTest, ShowsDevicesAndMemoryPolicies) {
  JobSnapshot snapshot = Example();
  EXPECT_FALSE(json::parse(StatusDocument(snapshot)).contains("devices"));
  EXPECT_FALSE(json::parse(StatusDocument(snapshot))["ranks"][0].contains("memory"));
  snapshot.ranks[0].identity.device = {.type = "GPU",
                                       .devices = {"GPU-aaaa"},
                                       .shared = true,
                                       .memory_policy = "Fraction",
                                       .memory_limit = 500,
                                       .memory_fraction = 0.5,
                                       .held_by_mps = true};
  snapshot.ranks[0].memory_held = 300;
  snapshot.ranks[0].memory_peak = 200;
  snapshot.devices = {{.index = 0,
                       .uuid = "GPU-aaaa",
                       .memory_bytes = 1000,
                       .utilization = 0.375,
                       .throttled = {"PowerCap"},
                       .xid_errors = 1,
                       .last_xid = 79,
                       .trouble = "Xid 79 (GPU has fallen off the bus)",
                       .left_out = true}};
  const json status = json::parse(StatusDocument(snapshot));
  EXPECT_EQ(status["ranks"][0]["device"],
            json::parse(R"({"type": "GPU", "devices": ["GPU-aaaa"], "shared": true})"));
  EXPECT_EQ(status["ranks"][0]["memory"], json::parse(R"({"policy": "Fraction", "limitBytes": 500,
      "fraction": "0.5", "enforce": "MPS", "heldBytes": 300, "peakBytes": 200})"));
  EXPECT_EQ(status["devices"][0],
            json::parse(R"json({"index": 0, "uuid": "GPU-aaaa", "name": "", "memoryBytes": 1000,
      "utilization": "0.38", "throttled": ["PowerCap"], "xidErrors": 1, "lastXid": 79,
      "trouble": "Xid 79 (GPU has fallen off the bus)", "leftOut": true})json"));
}

TEST(StatusDocumentTest, HasTheNamesAndTypesOfTheManifestsStatus) {
  const json status = json::parse(StatusDocument(Example()));
  EXPECT_EQ(status["name"], "mnist");
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["attempt"], 0);
  EXPECT_EQ(status["restarts"], 1);
  EXPECT_EQ(status["generation"], 1);
  EXPECT_EQ(status["startTime"], "2023-11-14T22:13:20Z");
  EXPECT_FALSE(status.contains("completionTime"));
  EXPECT_EQ(status["goodput"], "0.9750");
  EXPECT_EQ(status["productiveSeconds"], "58.500");
  EXPECT_EQ(status["lostSeconds"]["Restart"], "1.500");
  EXPECT_EQ(status["lostSeconds"]["WaitingForResources"], "0.000");
  EXPECT_EQ(status["straggler"], json::parse(R"({"rank": 1, "delaySeconds": "0.0125"})"));
  EXPECT_EQ(status["ranks"][1]["delaySeconds"], "0.0125");
  const json& progress = status["progress"];
  EXPECT_EQ(progress["step"], 120);
  EXPECT_EQ(progress["totalSteps"], 392);
  EXPECT_EQ(progress["percentage"], 30);
  EXPECT_EQ(progress["estimatedRemainingSeconds"], 41);
  EXPECT_EQ(progress["samplesPerSecond"], "90321");
  EXPECT_EQ(progress["loss"], "0.31");
  EXPECT_EQ(progress["lossAverage"], "0.33");
  EXPECT_EQ(progress["accuracy"], "0.9612");
  EXPECT_EQ(progress["lastUpdatedTime"], "2023-11-14T22:14:20Z");
  const json& failure = status["lastFailure"];
  EXPECT_EQ(failure["replica"], 0);
  EXPECT_EQ(failure["process"], 1);
  EXPECT_EQ(failure["exitCode"], 137);
  EXPECT_EQ(failure["reason"], "OOMKilled");
  ASSERT_EQ(status["ranks"].size(), 2u);
  EXPECT_EQ(status["ranks"][0]["pid"], 4711);
  EXPECT_EQ(status["ranks"][0]["phase"], "Training");
  EXPECT_EQ(status["ranks"][0]["memoryBytes"], 1 << 20);
  EXPECT_EQ(status["ranks"][0]["stepSeconds"], "0.0028");
  EXPECT_EQ(status["ranks"][0]["collectiveSeconds"], "0.0004");
  EXPECT_EQ(status["ranks"][1]["state"], "Exited");
  EXPECT_EQ(status["ranks"][1]["exitCode"], 137);
}

TEST(StatusDocumentTest, AJobThatHasNotBegunIsADocumentToo) {
  const json status = json::parse(StatusDocument(JobSnapshot()));
  EXPECT_EQ(status["phase"], "Pending");
  EXPECT_FALSE(status.contains("progress"));
  EXPECT_TRUE(status["ranks"].empty());
}

TEST(StatusDocumentTest, TellsTheGenerationsAndTheLastLinesOfAFailure) {
  JobSnapshot snapshot = Example();
  snapshot.last_failure->last_lines = {"one", "two \xff"};
  snapshot.ranks[1].restarts = 2;
  snapshot.ranks[1].layers = "dense_1";
  snapshot.generations = {
      {.generation = 0, .world_size = 2, .began = 0.25, .ended = 30, .reason = "Signal", .message = "rank 1"},
      {.generation = 1, .world_size = 2, .began = 31.5, .restarted_alone = 1}};
  const json status = json::parse(StatusDocument(snapshot));
  EXPECT_EQ(status["elapsedSeconds"], "61.000");
  EXPECT_EQ(status["lastFailure"]["lastLines"], json::parse("[\"one\", \"two \uFFFD\"]"));
  EXPECT_EQ(status["ranks"][1]["restarts"], 2);
  EXPECT_FALSE(status["ranks"][0].contains("layers"));
  EXPECT_EQ(status["ranks"][1]["layers"], "dense_1");
  EXPECT_EQ(status["generations"], json::parse(R"([
      {"generation": 0, "worldSize": 2, "startSeconds": "0.250", "endSeconds": "30.000", "reason": "Signal",
       "message": "rank 1"},
      {"generation": 1, "worldSize": 2, "startSeconds": "31.500", "restartedAlone": 1}])"));
  EXPECT_FALSE(status.contains("generationsForgotten"));
  EXPECT_FALSE(json::parse(StatusDocument(Example()))["lastFailure"].contains("lastLines"));
  snapshot.generations_forgotten = 7;
  EXPECT_EQ(json::parse(StatusDocument(snapshot))["generationsForgotten"], 7);
}

TEST(StatusDocumentTest, HasTheCurvesInColumnsWhereTheyAreAskedFor) {
  EXPECT_FALSE(json::parse(StatusDocument(Example())).contains("curves"));
  const std::vector<CurvePoint> curve = {
      {.seconds = 0.50049, .step = 3, .loss = 2.3025851, .samples_per_second = 123456.7},
      {.seconds = 1.25, .step = 9}};
  EXPECT_EQ(json::parse(StatusDocument(Example(), curve))["curves"], json::parse(R"({"seconds": [0.5, 1.25],
      "step": [3, 9], "loss": [2.30259, null], "samplesPerSecond": [123460, null]})"));
}

}  // namespace
}  // namespace lockstep::telemetry
