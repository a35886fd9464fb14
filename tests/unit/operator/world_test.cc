#include "launcher/operator/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::op {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Json TrainingJob(const std::string& name, const std::string& uid, int version = 1, int generation = 1) {
  return {{"metadata",
           {{"namespace", "team"},
            {"name", name},
            {"uid", uid},
            {"generation", generation},
            {"resourceVersion", std::to_string(version)}}},
          {"spec", {{"replicas", 2}}}};
}

Json ChildOf(const std::string& owner, const std::string& name) {
  return {{"metadata",
           {{"namespace", "team"},
            {"name", name},
            {"uid", "uid-" + name},
            {"labels", {{"lockstep.dev/job-uid", owner}}},
            {"ownerReferences",
             Json::array({{{"kind", "TrainingJob"}, {"uid", owner}, {"controller", true}}})}}}};
}

class WorldTest : public testing::Test {
 protected:
  void List(kube::FollowSink& sink, std::vector<Json> objects) {
    sink.BeginList();
    for (Json& object : objects) sink.Seen(object);
    sink.EndList();
  }

  std::vector<std::string> changed_;
  World world_{[this](const kube::ObjectName& name) { changed_.push_back(name.name); }};
  std::unique_ptr<kube::FollowSink> jobs_ = world_.JobSink();
  std::unique_ptr<kube::FollowSink> children_ = world_.ChildJobSink();
  std::unique_ptr<kube::FollowSink> services_ = world_.ServiceSink();
  std::unique_ptr<kube::FollowSink> pods_ = world_.PodSink();
};

TEST_F(WorldTest, IsSyncedWhenEveryListIsCompleteAndThenNamesEveryJob) {
  List(*jobs_, {TrainingJob("a", "1"), TrainingJob("b", "2")});
  List(*children_, {});
  List(*services_, {});
  EXPECT_FALSE(world_.synced());
  changed_.clear();
  List(*pods_, {});
  EXPECT_TRUE(world_.synced());
  EXPECT_THAT(changed_, ElementsAre("a", "b"));
}

TEST_F(WorldTest, MatchesChildrenByTheirOwnersUid) {
  List(*jobs_, {TrainingJob("a", "1"), TrainingJob("b", "2")});
  List(*children_, {ChildOf("1", "x"), ChildOf("2", "y"), ChildOf("3", "z")});
  List(*pods_, {ChildOf("1", "x-0")});
  const auto a = world_.Observe({"team", "a"});
  ASSERT_TRUE(a);
  ASSERT_THAT(a->jobs, SizeIs(1));
  EXPECT_EQ(a->jobs[0].name, "x");
  EXPECT_THAT(a->pods, SizeIs(1));
  EXPECT_THAT(world_.Observe({"team", "b"})->pods, IsEmpty());

  changed_.clear();
  Json gone = ChildOf("1", "x-0");
  pods_->Gone(gone);
  EXPECT_THAT(changed_, ElementsAre("a"));
  EXPECT_THAT(world_.Observe({"team", "a"})->pods, IsEmpty());
}

TEST_F(WorldTest, DropsWhatANewListNoLongerHas) {
  List(*jobs_, {TrainingJob("a", "1"), TrainingJob("b", "2")});
  List(*pods_, {ChildOf("1", "a-0"), ChildOf("1", "a-1"), ChildOf("2", "b-0")});
  List(*pods_, {ChildOf("1", "a-1")});
  EXPECT_THAT(world_.Observe({"team", "a"})->pods, SizeIs(1));
  EXPECT_THAT(world_.Observe({"team", "b"})->pods, IsEmpty());
  List(*jobs_, {TrainingJob("b", "2")});
  EXPECT_FALSE(world_.Observe({"team", "a"}));
}

TEST_F(WorldTest, DoesNotGoBackBehindWhatItWrote) {
  List(*jobs_, {TrainingJob("a", "1", 9)});
  world_.Wrote(ReadTrainingJob(TrainingJob("a", "1", 12, 3)));
  Json late = TrainingJob("a", "1", 10, 2);
  jobs_->Seen(late);
  EXPECT_EQ(world_.Observe({"team", "a"})->job.generation, 3);
  // Another object of the same name has versions of its own.
  Json other = TrainingJob("a", "7", 11, 1);
  jobs_->Seen(other);
  EXPECT_EQ(world_.Observe({"team", "a"})->job.uid, "7");
}

TEST_F(WorldTest, NamesNoJobForWhatItKnowsAlready) {
  List(*jobs_, {TrainingJob("a", "1", 5)});
  world_.Wrote("1", ReadChildJob(ChildOf("1", "x")));
  world_.Wrote(ReadTrainingJob(TrainingJob("a", "1", 6)));
  changed_.clear();
  Json echo = ChildOf("1", "x");
  children_->Seen(echo);
  Json own = TrainingJob("a", "1", 6);
  jobs_->Seen(own);
  EXPECT_THAT(changed_, IsEmpty());
  echo["status"] = {{"active", 2}};
  children_->Seen(echo);
  EXPECT_THAT(changed_, ElementsAre("a"));
}

TEST_F(WorldTest, CountsJobsByPhase) {
  Json running = TrainingJob("a", "1");
  running["status"] = {{"phase", "Running"}};
  List(*jobs_, {running, TrainingJob("b", "2")});
  const auto counts = world_.JobsByPhase();
  EXPECT_EQ(counts.at("Running"), 1);
  EXPECT_EQ(counts.at("Pending"), 1);
  EXPECT_EQ(counts.at("Failed"), 0);
}

}  // namespace
}  // namespace lockstep::op
