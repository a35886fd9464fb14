#include "launcher/plugin/pod_logs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "tests/unit/kube/scripted_server.h"
#include "tests/unit/plugin/objects.h"

namespace lockstep::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Json;
using testing::ScriptedAnswer;
using testing::ScriptedServer;
using testing::SeenRequest;

ScriptedAnswer NotFound() {
  return {.status = 404, .body = R"({"kind":"Status","reason":"NotFound","code":404,"message":"gone"})"};
}

// A cluster with the job, `pods`, and for the rest what `log` answers.
ScriptedServer::Script Cluster(
    std::function<std::vector<Json>()> pods, ScriptedServer::Script log,
    std::function<std::string()> phase = [] { return "Running"; }) {
  return [pods = std::move(pods), log = std::move(log), phase = std::move(phase)](const SeenRequest& request,
                                                                                  int number) {
    if (request.target.ends_with("/trainingjobs/mnist")) {
      Json job = testing::Job(phase());
      if (phase() == "Succeeded") job["status"]["conditions"] = {{{"type", "Complete"}, {"status", "True"}}};
      return ScriptedAnswer{.body = job.dump()};
    }
    if (request.target.find("/pods?") != std::string::npos) {
      return ScriptedAnswer{.body = Json{{"metadata", {{"resourceVersion", "1"}}}, {"items", pods()}}.dump()};
    }
    if (request.target.find("/log?") != std::string::npos) return log(request, number);
    for (const Json& pod : pods()) {
      if (request.target.ends_with(pod["metadata"]["name"].get<std::string>())) {
        return ScriptedAnswer{.body = pod.dump()};
      }
    }
    return NotFound();
  };
}

struct Shown {
  Status status;
  std::vector<std::string> lines;
  std::vector<std::string> problems;
};

Shown Show(const ScriptedServer& server, LogOptions options, size_t most_lines = 1000) {
  options.name = {"team", "mnist"};
  const auto client = server.Connect();
  Shown shown;
  std::mutex mutex;
  shown.status = ShowLogs(*client, options,
                          {.write =
                               [&](std::string_view line) {
                                 shown.lines.emplace_back(line);
                                 return shown.lines.size() < most_lines;
                               },
                           .complain =
                               [&](const std::string& problem) {
                                 const std::lock_guard lock(mutex);
                                 shown.problems.push_back(problem);
                               }});
  return shown;
}

std::vector<Json> TwoPods() { return {testing::Pod(0), testing::Pod(1), testing::Pod(0, 0)}; }

ScriptedAnswer TwoLogs(const SeenRequest& request, int) {
  if (request.target.find("-1-0/") != std::string::npos) {
    return {.body = "2026-01-31T12:00:00.1Z lockstep: starts\n2026-01-31T12:00:00.3Z [rank 0] a\n"};
  }
  return {.body = "2026-01-31T12:00:00.2Z [rank 2] b\n2026-01-31T12:00:00.4Z [rank 3] c"};
}

TEST(PodLogsTest, AreOneByTime) {
  ScriptedServer server(Cluster(TwoPods, TwoLogs));
  const Shown shown = Show(server, {});
  EXPECT_TRUE(shown.status.ok());
  EXPECT_THAT(shown.lines,
              ElementsAre("[worker-0] lockstep: starts\n", "[rank 2] b\n", "[rank 0] a\n", "[rank 3] c\n"));
  EXPECT_THAT(shown.problems, IsEmpty());
}

TEST(PodLogsTest, CanBeOfARankOrAReplicaOrWithTimes) {
  ScriptedServer server(Cluster(TwoPods, TwoLogs));
  EXPECT_THAT(Show(server, {.rank = 3}).lines, ElementsAre("[rank 3] c\n"));
  EXPECT_THAT(
      Show(server, {.replica = 0, .tail = 5, .timestamps = true}).lines,
      ElementsAre("2026-01-31T12:00:00Z [worker-0] lockstep: starts\n", "2026-01-31T12:00:00Z [rank 0] a\n"));
  EXPECT_THAT(server.requests().back().target, HasSubstr("tailLines=5"));
}

TEST(PodLogsTest, ThatCannotBeHadAreSaid) {
  ScriptedServer server(Cluster(TwoPods, [](const SeenRequest& request, int number) {
    return request.target.find("-1-0/") != std::string::npos ? TwoLogs(request, number) : NotFound();
  }));
  const Shown shown = Show(server, {});
  EXPECT_TRUE(shown.status.ok());
  EXPECT_EQ(shown.lines.size(), 2u);
  EXPECT_THAT(shown.problems, ElementsAre(HasSubstr("gone")));
}

TEST(PodLogsTest, OfTooManyPodsAreRefused) {
  ScriptedServer server(Cluster(TwoPods, TwoLogs));
  EXPECT_EQ(Show(server, {.most_pods = 1}).status.code(), StatusCode::kResourceExhausted);
}

TEST(PodLogsTest, OfAJobWithoutPodsSaySo) {
  ScriptedServer server(Cluster([] { return std::vector<Json>{}; }, TwoLogs));
  EXPECT_THAT(Show(server, {}).problems, ElementsAre(HasSubstr("no pod of mnist has started yet")));
}

TEST(PodLogsTest, FollowedGoOnWhereAConnectionBroke) {
  std::atomic<int> asked = 0;
  std::atomic<bool> over = false;
  ScriptedServer server(
      Cluster([&] { return std::vector<Json>{testing::Pod(0, 1, over ? "Succeeded" : "Running")}; },
              [&](const SeenRequest& request, int) {
                if (asked++ == 0)
                  return ScriptedAnswer{.body = "2026-01-31T12:00:00.1Z one\n2026-01-31T12:00:00.2Z two\n"};
                EXPECT_THAT(request.target, HasSubstr("sinceTime=2026-01-31T12:00:00Z"));
                over = true;
                return ScriptedAnswer{.body = "2026-01-31T12:00:00.2Z two\n2026-01-31T12:00:00.3Z three\n"};
              },
              [&] { return over ? "Succeeded" : "Running"; }));
  const Shown shown = Show(server, {.follow = true});
  EXPECT_TRUE(shown.status.ok());
  EXPECT_THAT(shown.lines, ElementsAre("[worker-0] one\n", "[worker-0] two\n", "[worker-0] three\n"));
}

TEST(PodLogsTest, FollowedEndWhenTheCredentialsHaveRunOut) {
  std::atomic<bool> out = false;
  const auto cluster = Cluster([] { return std::vector<Json>{testing::Pod(0)}; },
                               [&](const SeenRequest&, int) {
                                 out = true;
                                 return ScriptedAnswer{.body = "2026-01-31T12:00:00.1Z one\n"};
                               });
  ScriptedServer server([&](const SeenRequest& request, int number) {
    return out ? ScriptedAnswer{.status = 401,
                                .body = R"({"kind":"Status","reason":"Unauthorized","code":401})"}
               : cluster(request, number);
  });
  const Shown shown = Show(server, {.follow = true});
  EXPECT_FALSE(shown.status.ok());
  EXPECT_THAT(shown.lines, ElementsAre("[worker-0] one\n"));
}

TEST(PodLogsTest, FollowedTakePodsInThatComeLater) {
  std::atomic<int> looks = 0;
  ScriptedServer server(Cluster(
      [&] {
        std::vector<Json> pods;
        if (++looks > 1) pods.push_back(testing::Pod(0, 2));
        return pods;
      },
      [](const SeenRequest&, int) {
        return ScriptedAnswer{.pieces = {"2026-01-31T12:00:00.1Z [rank 0] ", "late\n"}, .stays_open = true};
      }));
  // Its reader goes: nothing is waited for any more.
  EXPECT_THAT(Show(server, {.follow = true}, 1).lines, ElementsAre("[rank 0] late\n"));
}

}  // namespace
}  // namespace lockstep::plugin
