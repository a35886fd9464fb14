#include "launcher/spec/json.h"

#include <gtest/gtest.h>

#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using nlohmann::json;
using testing::JobOf;
using testing::WithSpec;
using testing::WithTrainer;

TEST(ToJsonTest, WritesEveryDefault) {
  const json job = json::parse(ToJson(JobOf(WithTrainer(""))));
  EXPECT_EQ(job["apiVersion"], "lockstep.dev/v1alpha1");
  EXPECT_EQ(job["spec"]["replicas"], 1);
  EXPECT_EQ(job["spec"]["strategy"]["type"], "Mirrored");
  EXPECT_EQ(job["spec"]["trainer"]["data"]["samples"], 50'000);
  EXPECT_EQ(job["spec"]["trainer"]["optimizer"]["type"], "SGD");
  EXPECT_EQ(job["spec"]["trainer"]["optimizer"]["learningRate"], 0.01);
  EXPECT_EQ(job["spec"]["trainer"]["model"]["layers"][0]["name"], "dense");
  EXPECT_EQ(job["spec"]["runPolicy"]["terminationGracePeriodSeconds"], 30);
}

TEST(ToJsonTest, LeavesOutWhatDoesNotApply) {
  const json spec = json::parse(ToJson(JobOf(WithTrainer(""))))["spec"];
  EXPECT_FALSE(spec.contains("processesPerReplica"));
  EXPECT_FALSE(spec.contains("program"));
  EXPECT_FALSE(spec["trainer"].contains("checkpoint"));
  EXPECT_FALSE(spec["trainer"]["optimizer"].contains("beta1"));
  EXPECT_FALSE(spec["strategy"].contains("stages"));
  EXPECT_FALSE(
      json::parse(ToJson(JobOf(WithSpec("  program: {command: [a]}\n"))))["spec"].contains("strategy"));
}

TEST(ToJsonTest, IsStable) {
  const std::string text = ToJson(JobOf(WithTrainer("")));
  EXPECT_EQ(text.substr(0, 59), R"({"apiVersion":"lockstep.dev/v1alpha1","kind":"TrainingJob",)");
  EXPECT_LT(text.find("\"replicas\""), text.find("\"trainer\""));
  EXPECT_LT(text.find("\"trainer\""), text.find("\"strategy\""));
}

TEST(ToJsonTest, StringsOfAnyKindComeBack) {
  TrainingJob job = JobOf(WithSpec("  program: {command: [a]}\n"));
  job.program->command = {"a",
                          "",
                          "yes",
                          "010",
                          "~",
                          "a: b # c",
                          "\"quoted\" 'twice' \\ / \\n",
                          "line\nbreak\r\n\ttab",
                          "\x01\x1f\x7f",
                          "é ß 漢字 😀",
                          "\xc2\x80\xc2\x85\xc2\x9f",              // C1 controls, NEL
                          "\xe2\x80\xa8\xe2\x80\xa9",              // line and paragraph separators
                          "\xef\xbb\xbf\xef\xbf\xbe\xef\xbf\xbf",  // byte-order mark, no characters
                          std::string(5000, 'x')};
  EXPECT_EQ(JobOf(ToJson(job)), job);
  EXPECT_EQ(JobOf(ToJson(job, 2)), job);
}

TEST(ToJsonTest, NumbersComeBackExactly) {
  TrainingJob job = JobOf(WithTrainer(""));
  for (const double rate : {1e-7, 0.1, 1.0 / 3, 5e-324, 123456.789, 1e5}) {
    job.trainer->optimizer.learning_rate = rate;
    EXPECT_EQ(JobOf(ToJson(job)).trainer->optimizer.learning_rate, rate);
  }
  job.trainer->seed = INT64_MAX;
  EXPECT_EQ(JobOf(ToJson(job)).trainer->seed, static_cast<uint64_t>(INT64_MAX));
}

}  // namespace
}  // namespace lockstep::spec
