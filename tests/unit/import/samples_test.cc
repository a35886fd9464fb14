// The files of tests/testdata/import: manifests with the fields that the documented examples of the other
// projects have.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/operator/pod_template.h"
#include "tests/unit/import/support.h"

namespace lockstep::importer {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class SamplesTest : public ::testing::TestWithParam<std::filesystem::path> {};

std::string NameOf(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

TEST_P(SamplesTest, BecomesValidTrainingJobs) {
  const Imported imported = testing::ImportText(testing::TextOf(GetParam()));
  EXPECT_THAT(imported.errors, IsEmpty()) << imported.errors.front().ToString();
  EXPECT_GE(imported.jobs, 1);
  EXPECT_EQ(testing::JobsOf(imported).size(), static_cast<size_t>(imported.jobs));
}

TEST_P(SamplesTest, HasTemplatesThatTheOperatorTakes) {
  for (const spec::TrainingJob& job : testing::JobsOf(testing::ImportText(testing::TextOf(GetParam())))) {
    for (const spec::Role& role : job.roles) {
      ASSERT_THAT(role.pod_template_json, Not(IsEmpty()));
      const auto overlay = nlohmann::json::parse(role.pod_template_json);
      EXPECT_THAT(op::CheckTemplate(overlay), IsEmpty());
      nlohmann::json pod = nlohmann::json::object();
      op::Conflicts conflicts;
      op::MergeTemplate(pod, overlay, conflicts);
      EXPECT_THAT(conflicts, IsEmpty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SamplesTest, ::testing::ValuesIn(testing::Samples()), NameOf);

TEST(SamplesTest, CoverEveryKind) { EXPECT_GE(testing::Samples().size(), 13u); }

}  // namespace
}  // namespace lockstep::importer
