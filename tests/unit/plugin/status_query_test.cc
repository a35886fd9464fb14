#include "launcher/plugin/status_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/kube/scripted_server.h"
#include "tests/unit/plugin/objects.h"

namespace lockstep::plugin {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::Json;
using testing::ScriptedAnswer;
using testing::ScriptedServer;
using testing::SeenRequest;

Json ListOf(std::vector<Json> items) {
  return {{"metadata", {{"resourceVersion", "1"}}}, {"items", std::move(items)}};
}

TEST(StatusQueryTest, AsksTheAgentsThroughTheApiServer) {
  ScriptedServer server([](const SeenRequest& request, int) {
    if (request.target.ends_with("/trainingjobs/mnist")) return ScriptedAnswer{.body = testing::Job().dump()};
    if (request.target.find("/pods?") != std::string::npos) {
      return ScriptedAnswer{.body = ListOf({testing::Pod(0), testing::Pod(1), testing::Pod(0, 0)}).dump()};
    }
    if (request.target.find("-1-0") != std::string::npos) return ScriptedAnswer{.body = testing::Agent(0)};
    return ScriptedAnswer{.status = 403, .body = R"({"kind":"Status","reason":"Forbidden","code":403})"};
  });
  const auto client = server.Connect();
  const auto view = AskForStatus(*client, {.name = {"team", "mnist"}});
  ASSERT_TRUE(view.ok());
  ASSERT_EQ(view->pods.size(), 2u);
  EXPECT_EQ(view->pods[0].ranks.size(), 2u);
  EXPECT_EQ(view->pods[1].silent, "you may not get pods/proxy");
  const auto seen = server.requests();
  EXPECT_THAT(seen, Contains(Field(&SeenRequest::target,
                                   HasSubstr("labelSelector=lockstep.dev%2Fjob-uid%3Djob-uid"))));
  EXPECT_THAT(seen, Contains(Field(&SeenRequest::target,
                                   "/api/v1/namespaces/team/pods/mnist-worker-1-0%3A8081/proxy/status")));
}

TEST(StatusQueryTest, AsksNoMoreAgentsThanItMayAndWaitsForNone) {
  ScriptedServer server([](const SeenRequest& request, int) {
    if (request.target.ends_with("/trainingjobs/mnist")) return ScriptedAnswer{.body = testing::Job().dump()};
    if (request.target.find("/pods?") != std::string::npos) {
      return ScriptedAnswer{.body = ListOf({testing::Pod(0), testing::Pod(1), testing::Pod(2)}).dump()};
    }
    return ScriptedAnswer{.pieces = {"{"}, .stays_open = true};
  });
  const auto client = server.Connect();
  const auto began = kube::Clock::now();
  const auto view = AskForStatus(
      *client, {.name = {"team", "mnist"}, .most_agents = 2, .timeout = std::chrono::milliseconds(300)});
  ASSERT_TRUE(view.ok());
  EXPECT_LT(kube::Clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(view->left_out, 1);
  EXPECT_FALSE(view->pods[0].silent.empty());
  EXPECT_TRUE(view->pods[2].silent.empty());
}

TEST(StatusQueryTest, SaysThatThereIsNoSuchJob) {
  ScriptedServer server([](const SeenRequest&, int) {
    return ScriptedAnswer{
        .status = 404, .body = R"({"kind":"Status","reason":"NotFound","code":404,"message":"not found"})"};
  });
  const auto client = server.Connect();
  EXPECT_TRUE(AskForStatus(*client, {.name = {"team", "mnist"}}).failed_with(kube::Reason::kNotFound));
}

}  // namespace
}  // namespace lockstep::plugin
