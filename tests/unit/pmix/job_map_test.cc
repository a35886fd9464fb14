#include "launcher/pmix/job_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::pmix {
namespace {

using ::testing::HasSubstr;

TEST(JobMapTest, KnowsWhereEachRankIs) {
  const JobMap map{.name_space = "job", .folder = "/f", .machines = {2, 1, 3}, .self = 2};
  EXPECT_EQ(map.size(), 6);
  EXPECT_EQ(map.first_rank(0), 0);
  EXPECT_EQ(map.first_rank(2), 3);
  const std::vector<size_t> machines{0, 0, 1, 2, 2, 2};
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(map.machine_of(rank), machines[static_cast<size_t>(rank)]);
}

TEST(JobMapTest, IsReadAsItWasWritten) {
  const auto map =
      ParseJobMap(FormatJobMap({.name_space = "a \"b\"", .folder = "/f", .machines = {2, 1}, .self = 1}));
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_EQ(map->name_space, "a \"b\"");
  EXPECT_EQ(map->folder, "/f");
  EXPECT_EQ(map->machines, (std::vector<int>{2, 1}));
  EXPECT_EQ(map->self, 1u);
}

TEST(JobMapTest, SaysWhatIsWrong) {
  const auto why = [](const std::string& text) { return ParseJobMap(text).status().message(); };
  EXPECT_THAT(why(""), HasSubstr("the map of the job"));
  EXPECT_THAT(why(R"({"nameSpace": "a", "folder": "/f", "machines": [1]})"), HasSubstr("self"));
  EXPECT_THAT(why(R"({"nameSpace": "a", "folder": "/f", "machines": [1, 0], "self": 0})"),
              HasSubstr("a machine of 0 ranks"));
  EXPECT_THAT(why(R"({"nameSpace": "a", "folder": "/f", "machines": [1], "self": 1})"),
              HasSubstr("self is 1 of 1 machines"));
  EXPECT_THAT(why(R"({"nameSpace": "", "folder": "/f", "machines": [1], "self": 0})"), HasSubstr("0 bytes"));
}

}  // namespace
}  // namespace lockstep::pmix
