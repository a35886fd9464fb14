#include "launcher/kube/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/unit/kube/scripted_server.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScriptedAnswer;
using testing::ScriptedServer;
using testing::SeenRequest;

constexpr ObjectName kName{"default", "a"};

std::string StatusBody(int code, const std::string& reason, const std::string& message) {
  return Json{{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}}.dump();
}

TEST(ClientTest, AsksAsTheApiWantsIt) {
  ScriptedServer server([](const SeenRequest&, int) { return ScriptedAnswer{}; });
  const auto client = server.Connect({.field_manager = "me"});
  ASSERT_TRUE(client->Get(kJobs, kName, {.subresource = "status"}).ok());
  ASSERT_TRUE(client->Create(kPods, "default", {{"metadata", {{"name", "a"}}}}, {.dry_run = true}).ok());
  ASSERT_TRUE(client->Apply(kServices, kName, {{"spec", {{"clusterIP", "None"}}}}, {.force = true}).ok());
  ASSERT_TRUE(client->MergePatch(kTrainingJobs, kName, {{"status", {}}}, {.subresource = "status"}).ok());
  ASSERT_TRUE(client->Delete(kJobs, kName, {.propagation = Propagation::kForeground, .uid = "u"}).ok());
  const auto seen = server.requests();
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0].method + " " + seen[0].target, "GET /apis/batch/v1/namespaces/default/jobs/a/status");
  EXPECT_EQ(seen[1].method + " " + seen[1].target,
            "POST /api/v1/namespaces/default/pods?fieldManager=me&dryRun=All");
  EXPECT_EQ(
      Json::parse(seen[1].body),
      Json({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "a"}, {"namespace", "default"}}}}));
  EXPECT_EQ(seen[2].method + " " + seen[2].target,
            "PATCH /api/v1/namespaces/default/services/a?fieldManager=me&force=true");
  EXPECT_EQ(seen[2].content_type, "application/apply-patch+yaml");
  EXPECT_EQ(seen[3].target,
            "/apis/lockstep.dev/v1alpha1/namespaces/default/trainingjobs/a/status?fieldManager=me");
  EXPECT_EQ(seen[3].content_type, "application/merge-patch+json");
  const Json removal = Json::parse(seen[4].body);
  EXPECT_EQ(removal["propagationPolicy"], "Foreground");
  EXPECT_EQ(removal["preconditions"], Json({{"uid", "u"}}));
}

TEST(ClientTest, TellsFailuresApart) {
  struct Case {
    int status;
    std::string reason;
    Reason expected;
    bool creates = false;
  };
  const std::vector<Case> cases = {
      {400, "BadRequest", Reason::kBadRequest}, {401, "Unauthorized", Reason::kUnauthorized},
      {403, "Forbidden", Reason::kForbidden},   {404, "NotFound", Reason::kNotFound},
      {409, "Conflict", Reason::kConflict},     {409, "AlreadyExists", Reason::kAlreadyExists, true},
      {410, "Expired", Reason::kExpired},       {410, "Gone", Reason::kExpired},
      {422, "Invalid", Reason::kInvalid},       {500, "InternalError", Reason::kServerError},
      {502, "", Reason::kServerError},          {504, "Timeout", Reason::kServerError}};
  for (const Case& one : cases) {
    ScriptedServer server([&](const SeenRequest&, int) {
      return ScriptedAnswer{.status = one.status, .body = StatusBody(one.status, one.reason, "so it is")};
    });
    const auto client = server.Connect();
    const auto answer = one.creates ? client->Create(kPods, "default", {}) : client->Get(kPods, kName);
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(ReasonName(answer.error().reason), ReasonName(one.expected));
    EXPECT_EQ(answer.error().http_status, one.status);
    EXPECT_THAT(answer.error().message, HasSubstr("so it is"));
    EXPECT_EQ(server.requests().size(), 1u) << "what may have been done is not done again";
  }
}

TEST(ClientTest, WaitsAsLongAsTheServerAsks) {
  ScriptedServer server([](const SeenRequest&, int number) {
    return number == 0 ? ScriptedAnswer{.status = 429, .retry_after = "1"} : ScriptedAnswer{};
  });
  const auto began = Clock::now();
  EXPECT_TRUE(server.Connect()->Create(kPods, "default", {}).ok());
  EXPECT_GE(Clock::now() - began, seconds(1));
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(ClientTest, DoesNotWaitBeyondItsDeadline) {
  ScriptedServer server(
      [](const SeenRequest&, int) { return ScriptedAnswer{.status = 503, .retry_after = "60"}; });
  const auto began = Clock::now();
  const auto answer = server.Connect()->Get(kPods, kName, {.timeout = milliseconds(2000)});
  ASSERT_TRUE(answer.failed_with(Reason::kServerError));
  EXPECT_EQ(answer.error().retry_after, seconds(60));
  EXPECT_LT(Clock::now() - began, seconds(2));
}

TEST(ClientTest, EndsAtItsDeadlineThoughTheServerTrickles) {
  ScriptedServer server(
      [](const SeenRequest&, int) { return ScriptedAnswer{.pieces = {"{"}, .stays_open = true}; });
  const auto client = server.Connect();
  const auto began = Clock::now();
  const auto answer = client->Get(kPods, kName, {.timeout = milliseconds(200)});
  EXPECT_TRUE(answer.failed_with(Reason::kDeadline)) << (answer.ok() ? "an answer" : answer.error().message);
  EXPECT_LT(Clock::now() - began, seconds(10));
}

TEST(ClientTest, StopEndsWhatIsInProgress) {
  ScriptedServer server([](const SeenRequest&, int) { return ScriptedAnswer{.stays_open = true}; });
  const auto client = server.Connect();
  std::thread stopper([&] {
    while (server.requests().empty()) std::this_thread::yield();
    client->Stop();
  });
  const auto began = Clock::now();
  EXPECT_TRUE(client->Watch(kPods, {}, [](EventType, Json&) { return true; }).failed_with(Reason::kStopped));
  stopper.join();
  EXPECT_LT(Clock::now() - began, seconds(10));
  EXPECT_TRUE(client->Get(kPods, kName).failed_with(Reason::kStopped));
  EXPECT_FALSE(client->Sleep(seconds(60)));
}

TEST(ClientTest, BoundsAnswersAndEvents) {
  ScriptedServer server([](const SeenRequest& request, int) {
    const std::string large(5000, 'x');
    if (request.target.find("watch=1") != std::string::npos) return ScriptedAnswer{.pieces = {large, large}};
    return ScriptedAnswer{.body = "{\"a\":\"" + large + "\"}"};
  });
  const auto client = server.Connect({.max_answer_bytes = 4096});
  EXPECT_TRUE(client->Get(kPods, kName).failed_with(Reason::kMalformed));
  EXPECT_TRUE(
      client->Watch(kPods, {}, [](EventType, Json&) { return true; }).failed_with(Reason::kMalformed));
}

TEST(ClientTest, StreamsWhatComesUntilItHasEnough) {
  ScriptedServer server([](const SeenRequest& request, int) {
    if (request.target == "/whole") return ScriptedAnswer{.pieces = {"a", "b", "c"}};
    if (request.target == "/log?follow=true") return ScriptedAnswer{.pieces = {"a", "b"}, .stays_open = true};
    return ScriptedAnswer{.status = 400, .body = StatusBody(400, "BadRequest", "not started")};
  });
  const auto client = server.Connect();
  std::string text;
  const auto add = [&](std::string_view bytes) {
    text += bytes;
    return true;
  };
  const auto whole = client->Stream("/whole", {}, add);
  ASSERT_TRUE(whole.ok());
  EXPECT_TRUE(*whole);
  EXPECT_EQ(text, "abc");
  text.clear();
  const auto cut = client->Stream("/log?follow=true", {}, [&](std::string_view bytes) {
    text += bytes;
    return text != "ab";
  });
  ASSERT_TRUE(cut.ok());
  EXPECT_FALSE(*cut);
  EXPECT_TRUE(
      client->Stream("/log?follow=true", {.timeout = milliseconds(200)}, add).failed_with(Reason::kDeadline));
  text.clear();
  EXPECT_TRUE(client->Stream("/other", {}, add).failed_with(Reason::kBadRequest));
  EXPECT_EQ(text, "");
}

TEST(ClientTest, RefusesWhatIsNoAnswer) {
  for (const char* body : {"", "[]", "not json", "{\"items\": 3}"}) {
    ScriptedServer server([&](const SeenRequest&, int) { return ScriptedAnswer{.body = body}; });
    const auto client = server.Connect();
    EXPECT_TRUE(client->List(kPods, {}, [](Json&) {}).failed_with(Reason::kMalformed)) << body;
  }
}

TEST(ClientTest, ReadsEventsHoweverTheyAreCut) {
  const std::string lines = R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"}}})"
                            "\n"
                            R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}})"
                            "\n";
  std::vector<std::string> pieces;
  for (size_t i = 0; i < lines.size(); i += 7) pieces.push_back(lines.substr(i, 7));
  ScriptedServer server([&](const SeenRequest&, int) { return ScriptedAnswer{.pieces = pieces}; });
  std::vector<EventType> types;
  const auto version = server.Connect()->Watch(kPods, {.resource_version = "4"}, [&](EventType type, Json&) {
    types.push_back(type);
    return true;
  });
  ASSERT_TRUE(version.ok()) << version.error().message;
  EXPECT_EQ(*version, "9");
  EXPECT_THAT(types, ::testing::ElementsAre(EventType::kAdded, EventType::kBookmark));
  EXPECT_THAT(server.requests()[0].target, HasSubstr("allowWatchBookmarks=true"));
  EXPECT_THAT(server.requests()[0].target, HasSubstr("resourceVersion=4"));
}

TEST(ClientTest, ReadsItsTokenAgainWhenItIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.Write("token", "old\n");
  ScriptedServer server([&](const SeenRequest& request, int) {
    if (request.authorization == "Bearer new") return ScriptedAnswer{};
    std::ofstream(file) << "new\n";
    return ScriptedAnswer{.status = 401, .body = StatusBody(401, "Unauthorized", "Unauthorized")};
  });
  Config config = server.config();
  config.token_file = file;
  auto client = Client::Make(config);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE((*client)->Get(kPods, kName).ok());
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].authorization, "Bearer old");
}

TEST(ClientTest, SaysNoTokenInItsErrors) {
  ScriptedServer server(
      [](const SeenRequest&, int) { return ScriptedAnswer{.status = 401, .body = "who are you?"}; });
  Config config = server.config();
  config.token = "very-secret";
  auto client = Client::Make(config);
  ASSERT_TRUE(client.ok());
  const auto answer = (*client)->Get(kPods, kName);
  ASSERT_TRUE(answer.failed_with(Reason::kUnauthorized));
  EXPECT_THAT(answer.error().message, Not(HasSubstr("very-secret")));
}

TEST(ClientTest, SaysWhenNobodyIsThere) {
  Config nowhere;
  nowhere.server = "http://127.0.0.1:1";
  auto client = Client::Make(nowhere);
  ASSERT_TRUE(client.ok());
  const auto answer = (*client)->Get(kPods, kName);
  ASSERT_TRUE(answer.failed_with(Reason::kUnreachable));
  EXPECT_TRUE(answer.error().retryable());
  nowhere.server = "127.0.0.1:1";
  EXPECT_EQ(Client::Make(nowhere).status().code(), StatusCode::kInvalidArgument);
}

TEST(ClientTest, KeepsToItsRate) {
  ScriptedServer server([](const SeenRequest&, int) { return ScriptedAnswer{}; });
  const auto client = server.Connect({.requests_per_second = 20, .burst = 2});
  const auto began = Clock::now();
  for (int i = 0; i < 7; ++i) ASSERT_TRUE(client->Get(kPods, kName).ok());
  EXPECT_GE(Clock::now() - began, milliseconds(240));  // five turns of 50 ms after the burst
  EXPECT_TRUE(server.Connect({.requests_per_second = 0.01, .burst = 1})->Get(kPods, kName).ok());
}

TEST(ClientTest, TellsItsObserver) {
  std::vector<int> codes;
  ScriptedServer server(
      [](const SeenRequest&, int number) { return ScriptedAnswer{.status = number == 0 ? 404 : 200}; });
  const auto client = server.Connect({.observer = [&](const RequestRecord& record) {
    EXPECT_EQ(record.method, "GET");
    EXPECT_GT(record.duration.count(), 0);
    codes.push_back(record.http_status);
  }});
  EXPECT_FALSE(client->Get(kPods, kName).ok());
  EXPECT_TRUE(client->Get(kPods, kName).ok());
  EXPECT_EQ(codes, (std::vector<int>{404, 200}));
}

}  // namespace
}  // namespace lockstep::kube
