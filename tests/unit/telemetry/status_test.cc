#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/contract/digest.h"
#include "launcher/telemetry/status_document.h"
#include "launcher/telemetry/status_page.h"

namespace lockstep::telemetry {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using std::chrono::system_clock;
using testing::HasSubstr;
using testing::Not;

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
  progress.accuracy = 0.9612;
  progress.last_updated = system_clock::time_point(seconds(1'700'000'060));
  snapshot.progress = progress;
  snapshot.goodput = 0.975;
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
  const json& progress = status["progress"];
  EXPECT_EQ(progress["step"], 120);
  EXPECT_EQ(progress["totalSteps"], 392);
  EXPECT_EQ(progress["percentage"], 30);
  EXPECT_EQ(progress["estimatedRemainingSeconds"], 41);
  EXPECT_EQ(progress["samplesPerSecond"], "90321");
  EXPECT_EQ(progress["loss"], "0.31");
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
  EXPECT_EQ(status["ranks"][1]["state"], "Exited");
  EXPECT_EQ(status["ranks"][1]["exitCode"], 137);
}

TEST(StatusDocumentTest, AJobThatHasNotBegunIsADocumentToo) {
  const json status = json::parse(StatusDocument(JobSnapshot()));
  EXPECT_EQ(status["phase"], "Pending");
  EXPECT_FALSE(status.contains("progress"));
  EXPECT_TRUE(status["ranks"].empty());
}

TEST(StatusPageTest, ShowsPhaseProgressAndRanks) {
  const std::string page = StatusPage(Example());
  for (const char* shown :
       {"<h1>mnist <span class=\"Running\">Running</span></h1>", "<progress", "max=\"392\" value=\"120\"",
        "120 / 392", "90,321", "0.3100", "96.12 %", "97.5 %", "4711", "2.80 ms", "1.0 MiB", "Exited with 137",
        "href=\"/metrics\"", "http-equiv=\"refresh\""}) {
    EXPECT_THAT(page, HasSubstr(shown));
  }
}

TEST(StatusPageTest, NothingFromOutsideBecomesMarkup) {
  JobSnapshot snapshot = Example();
  snapshot.description.name = "a<b>&\"'";
  snapshot.ranks[0].identity.role = "<i>";
  const std::string page = StatusPage(snapshot);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<i>")));
  EXPECT_THAT(page, HasSubstr("<h1>a&lt;b&gt;&amp;&quot;&#39; <span"));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)"));
}

TEST(StatusPageTest, AFinishedJobIsNotReloaded) {
  JobSnapshot snapshot = Example();
  snapshot.phase = JobPhase::kFailed;
  EXPECT_THAT(StatusPage(snapshot), Not(HasSubstr("refresh")));
  EXPECT_THAT(StatusPage(JobSnapshot()), HasSubstr("No step yet"));
}

std::string Base64OfHex(const std::string& hex) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  unsigned bits = 0;
  int count = 0;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bits = bits << 8 | static_cast<unsigned>(std::stoi(hex.substr(i, 2), nullptr, 16));
    for (count += 8; count >= 6; count -= 6) result += kDigits[bits >> (count - 6) & 63];
  }
  if (count > 0) result += kDigits[bits << (6 - count) & 63];
  while (result.size() % 4 != 0) result += '=';
  return result;
}

TEST(StatusPageTest, ThePolicyAllowsThePagesStyleAndNothingElse) {
  ASSERT_EQ(Base64OfHex("6869"), "aGk=");
  const std::string policy(StatusPagePolicy());
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; style-src 'sha256-" +
                                Base64OfHex(contract::Digest(StatusPageStyle())) + "'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  const std::string page = StatusPage(Example());
  EXPECT_THAT(page, HasSubstr("<style>" + std::string(StatusPageStyle()) + "</style>"));
  EXPECT_THAT(page, Not(HasSubstr("style=")));
}

}  // namespace
}  // namespace lockstep::telemetry
