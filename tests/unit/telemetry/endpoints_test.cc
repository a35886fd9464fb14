#include "launcher/telemetry/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/http/client.h"
#include "launcher/telemetry/page.h"
#include "tests/unit/http/raw_client.h"
#include "tests/unit/telemetry/exposition.h"

namespace lockstep::telemetry {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;
using ::testing::HasSubstr;

class EndpointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RegisterEndpoints(server_, state_, metrics_, viewers_);
    const Status started = server_.Start();
    ASSERT_TRUE(started.ok()) << started.ToString();
  }
  void TearDown() override { server_.Stop(); }

  http::HttpResponse Get(const std::string& path) const {
    const auto response = http::Get("http://" + server_.address() + path, Clock::now() + seconds(20));
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    return response.ok() ? *response : http::HttpResponse();
  }
  void LaunchAndStep() {
    state_.GenerationStarted(0, Clock::now());
    state_.RankStarted({.rank = 0}, 4711, Clock::now());
    state_.ApplyEvent(0, contract::StepEvent{.step = 1, .total_steps = 2, .samples = 8, .seconds = 0.001},
                      Clock::now());
  }

  JobMetrics metrics_{
      {.name = "mnist", .namespace_name = "default", .strategy = "Mirrored", .framework = "Lockstep"}};
  JobState state_{{.name = "mnist"}, metrics_, Clock::now()};
  Viewers viewers_;
  http::HttpServer server_;
};

TEST_F(EndpointsTest, HealthFollowsTheLoopsTicks) {
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/healthz").body, "ok\n");
  state_.Tick(Clock::now() - seconds(7));
  const auto sick = Get("/healthz");
  EXPECT_EQ(sick.status, 503);
  EXPECT_THAT(sick.body, HasSubstr("has not moved for 7 s"));
  state_.Tick(Clock::now());
  EXPECT_EQ(Get("/healthz").status, 200);
}

TEST_F(EndpointsTest, ReadinessFollowsTheFirstStep) {
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_THAT(Get("/readyz").body, HasSubstr("Pending"));
  LaunchAndStep();
  EXPECT_EQ(Get("/readyz").status, 200);
  state_.Restarting(RestartReason::kSignal, {}, Clock::now());
  EXPECT_EQ(Get("/readyz").status, 503);
}

TEST_F(EndpointsTest, MetricsComeInTheFormatThatIsAskedFor) {
  LaunchAndStep();
  const auto text = Get("/metrics");
  EXPECT_EQ(text.content_type, "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(ParseExposition(text.body).Value("lockstep_samples_total"), 8);
  EXPECT_GT(ParseExposition(text.body).Value("lockstep_goodput_ratio"), 0);

  const std::string answer = http::Exchange(server_.port(),
                                            "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                            "Accept: application/openmetrics-text;version=1.0.0\r\n\r\n");
  EXPECT_THAT(answer,
              HasSubstr("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
  EXPECT_TRUE(answer.ends_with("# EOF\n"));
}

TEST_F(EndpointsTest, StatusIsJsonAndHasTheCurvesOnlyWhereAsked) {
  LaunchAndStep();
  const auto status = Get("/status");
  EXPECT_EQ(status.content_type, "application/json");
  EXPECT_EQ(nlohmann::json::parse(status.body)["progress"]["percentage"], 50);
  EXPECT_FALSE(nlohmann::json::parse(status.body).contains("curves"));
  EXPECT_EQ(nlohmann::json::parse(Get("/status?curves=1").body)["curves"]["step"],
            nlohmann::json::array({1}));
}

TEST_F(EndpointsTest, OnlyThePagesQuestionsCountAsViewers) {
  Get("/status");
  Get("/status?curves=0");
  EXPECT_FALSE(viewers_.any(Clock::now()));
  Get("/status?curves=1");
  EXPECT_TRUE(viewers_.any(Clock::now()));
  EXPECT_FALSE(viewers_.any(Clock::now() + seconds(3)));
}

TEST_F(EndpointsTest, ThePageComesWithItsPolicy) {
  const auto page = Get("/");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-security-policy"), JobPage().policy);
  EXPECT_EQ(page.body, JobPage().html);
}

}  // namespace
}  // namespace lockstep::telemetry
