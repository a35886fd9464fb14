#include "tests/unit/spec/hostile.h"

#include <gtest/gtest.h>

#include <chrono>

#include "launcher/spec/json.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

// A guard against hanging only, wide enough for sanitizers on a busy machine; `hostile_manifests` measures.
constexpr std::chrono::seconds kDeadline{10};

void Check(const testing::HostileManifest& hostile) {
  const auto begin = std::chrono::steady_clock::now();
  const Manifests manifests = ReadManifests(hostile.text, "f");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kDeadline) << hostile.name;
  EXPECT_TRUE(!hostile.must_fail || !manifests.errors.empty()) << hostile.name;
  EXPECT_LE(manifests.errors.size(), static_cast<size_t>(kMaxDiagnostics) + 2) << hostile.name;
  for (const Diagnostic& error : manifests.errors) {
    EXPECT_GT(error.line, 0) << hostile.name;
    EXPECT_GT(error.column, 0) << hostile.name;
    EXPECT_LT(error.ToString().size(), 2000u) << hostile.name;
  }
  // What got through is a job like any other.
  for (const TrainingJob& job : manifests.jobs) EXPECT_EQ(testing::JobOf(ToJson(job)), job) << hostile.name;
}

TEST(HostileManifestsTest, EachGetsAnErrorSoon) {
  int count = 0;
  testing::VisitHostileManifests(
      testing::TextOf(testing::InSource("tests/testdata/manifests/good/all-trainer.yaml")),
      [&](const testing::HostileManifest& hostile) {
        ++count;
        Check(hostile);
      });
  EXPECT_GE(count, 200);
}

}  // namespace
}  // namespace lockstep::spec
