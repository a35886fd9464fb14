#include "launcher/ledger/claim_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace lockstep::ledger {
namespace {

using ::testing::HasSubstr;

Claim Sample() {
  return {.use = {.device = "GPU-aaaa",
                  .total_bytes = 100,
                  .policy = "Limit",
                  .bytes = 42,
                  .share = 0.5,
                  .processes = 3},
          .job = "mnist",
          .namespace_name = "default",
          .user = "",
          .pid = 4711,
          .since = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000))};
}

TEST(ClaimFileTest, ReadsWhatItWrites) {
  const Claim written = Sample();
  const auto read = ReadClaim(WriteClaim(written));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->use.device, written.use.device);
  EXPECT_EQ(read->use.total_bytes, 100);
  EXPECT_EQ(read->use.policy, "Limit");
  EXPECT_EQ(read->use.bytes, 42);
  EXPECT_DOUBLE_EQ(read->use.share, 0.5);
  EXPECT_EQ(read->use.processes, 3);
  EXPECT_EQ(read->job, "mnist");
  EXPECT_EQ(read->namespace_name, "default");
  EXPECT_EQ(read->pid, 4711);
  EXPECT_EQ(read->since, written.since);
}

TEST(ClaimFileTest, SaysWhatIsWrong) {
  const auto with = [](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(WriteClaim(Sample()));
    json[key] = value;
    return json.dump();
  };
  const std::pair<std::string, const char*> kCases[] = {
      {"", "is no JSON object"},
      {"[]", "is no JSON object"},
      {"{", "is no JSON object"},
      {"{}", "version is no whole number"},
      {std::string(kMaxClaimBytes, '['), "is no JSON object"},
      {std::string(kMaxClaimBytes + 1, ' '), "too long for a claim"},
      {with("version", 2), "of version 2"},
      {with("job", 7), "job is no string"},
      {with("job", std::string(300, 'x')), "job is too long"},
      {with("bytes", -1), "bytes is out of range"},
      {with("bytes", 18446744073709551615ULL), "bytes is out of range"},
      {with("bytes", 1.5), "bytes is no whole number"},
      {with("since", int64_t{1} << 40), "since is out of range"},
      {with("share", -0.5), "share is out of range"},
      {with("share", "all"), "share is no number"},
      {with("pid", nullptr), "pid is no whole number"},
  };
  for (const auto& [text, what] : kCases) {
    const auto read = ReadClaim(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(read.status().message(), HasSubstr(what)) << text.substr(0, 100);
  }
}

TEST(ClaimFileTest, SurvivesWhateverAStrangerWrites) {
  const std::string good = WriteClaim(Sample());
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) text.resize(random() % text.size());
    refused += ReadClaim(text).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace lockstep::ledger
