#include "trainer/checkpointing.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/unit/strategy/job.h"
#include "trainer/checkpoint/directory_names.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Job;
using testing::JobRank;
using testing::Meeting;
using ::testing::Not;
using testing::Outcome;

Job MirroredJob(int ranks) { return {.local_size = ranks}; }
Job TwoMachines() { return {.machines = 2, .local_size = 2, .kind = strategy::Kind::kMultiWorkerMirrored}; }
Job Divided() {
  Job job = TwoMachines();
  job.shard = strategy::Shard::kOptimizer;
  return job;
}
Job PipelineJob() {
  return {.local_size = 4, .kind = strategy::Kind::kPipeline, .pipeline = {.stages = {{0, 0}, {1, 2}}}};
}
Job OneDevice() { return {.kind = strategy::Kind::kOneDevice}; }

std::vector<checkpoint::Variable> Described(const std::vector<NamedShape>& variables) {
  std::vector<checkpoint::Variable> described;
  for (const NamedShape& variable : variables) described.push_back({variable.name, variable.shape.dims()});
  return described;
}

class CheckpointingTest : public ::testing::Test {
 protected:
  // Of a rank that sees `folder`, or the test's.
  std::unique_ptr<Checkpointing> Make(JobRank& rank, const Job& job, Meeting& meeting, int64_t part_bytes,
                                      const std::string& folder = "") {
    return std::make_unique<Checkpointing>(
        Checkpointing::Options{.config = {.directory = folder.empty() ? folder_.File("checkpoints") : folder},
                               .signature = {.variables = Described(rank.strategy().Variables(rank.model())),
                                             .optimizer = "Adam",
                                             .slots = {"m", "v"},
                                             .precision = "Float32"},
                               .world = {.rank = rank.rank(), .size = job.size()},
                               .run = "run",
                               .timeout = std::chrono::seconds(20),
                               .part_bytes = part_bytes},
        &meeting.store, rank.model(), rank.strategy(), events_);
  }

  // Trains from where the folder says to `steps` in all, and saves there. What the steps lost, by rank 0.
  std::vector<double> TrainAndSave(const Job& job, int64_t steps, int64_t part_bytes) {
    Meeting meeting;
    std::vector<double> losses;
    const auto thrown = testing::RunRanks(job.size(), [&](int r) {
      JobRank rank(job, meeting, r);
      rank.Setup();
      const auto checkpointing = Make(rank, job, meeting, part_bytes);
      const auto position = checkpointing->Resume();
      for (int64_t step = position ? position->step : 0; step < steps; ++step) {
        const double loss = rank.Step(step).loss;
        if (r == 0) losses.push_back(loss);
      }
      checkpointing->Save({.step = steps});
      rank.Step(steps);  // while it is written; it is not in it
      checkpointing->Flush();
      rank.strategy().Finish();
    });
    EXPECT_THAT(thrown, Each(IsEmpty()));
    return losses;
  }

  // On two ranks whose checkpoints are in two parts, `body`; the second sees `folder`, or what the first
  // does. What each threw.
  std::vector<std::string> OnTwoRanks(const std::function<void(JobRank&, Checkpointing&)>& body,
                                      const std::string& folder = "") {
    const Job job = MirroredJob(2);
    Meeting meeting;
    return testing::RunRanks(job.size(), [&](int r) {
      JobRank rank(job, meeting, r);
      rank.Setup();
      const auto checkpointing = Make(rank, job, meeting, 1, r == 0 ? "" : folder);
      EXPECT_FALSE(checkpointing->Resume());
      body(rank, *checkpointing);
    });
  }

  int PartsOf(int64_t step) const {
    int parts = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.File("checkpoints"))) {
      const auto id = checkpoint::ParsePartName(entry.path().filename().string());
      parts += id && id->step == step ? 1 : 0;
    }
    return parts;
  }

  // What was told so far.
  std::string Told() const {
    std::ifstream file(folder_.File("events"));
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::TemporaryFolder folder_;
  EventWriter events_{UniqueFd(::open(folder_.File("events").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600))};
};

// Every way is read by every other, whatever the number of ranks and of parts.
TEST_F(CheckpointingTest, PartsAreReadByAnyStrategyWithAnyNumberOfRanks) {
  const std::vector<double> undisturbed = testing::Train(OneDevice(), 60).losses[0];
  struct Way {
    Job job;
    int64_t part_bytes;
    int parts;
  };
  const std::vector<Way> ways = {{MirroredJob(4), 1, 4}, {PipelineJob(), 1, 4},
                                 {Divided(), 1, 2},      {MirroredJob(3), Checkpointing::kPartBytes, 0},
                                 {TwoMachines(), 1, 4},  {OneDevice(), 1, 0}};
  int64_t step = 0;
  for (const Way& way : ways) {
    const std::vector<double> losses = TrainAndSave(way.job, step + 10, way.part_bytes);
    ASSERT_EQ(losses.size(), 10u) << step;
    for (const double loss : losses) {
      const double wanted = undisturbed[static_cast<size_t>(step++)];
      EXPECT_NEAR(loss, wanted, wanted * 1e-4) << step;
    }
    EXPECT_EQ(PartsOf(step), way.parts) << step;
  }
  EXPECT_THAT(Told(), Not(HasSubstr("\"ok\":false")));
}

TEST_F(CheckpointingTest, APartThatCannotBeWrittenIsToldAndTrainingGoesOn) {
  const auto body = [](JobRank& rank, Checkpointing& checkpointing) {
    rank.Step(0);
    checkpointing.Save({.step = 1});
    rank.Step(1);
    checkpointing.Flush();
    rank.strategy().Finish();
  };
  EXPECT_THAT(OnTwoRanks(body, folder_.File("not there")), Each(IsEmpty()));
  EXPECT_THAT(Told(),
              AllOf(HasSubstr("\"ok\":false"), HasSubstr("the part of rank 1"), HasSubstr("not there")));
}

TEST_F(CheckpointingTest, AFolderThatIsNotTheSameEverywhereIsAskedAbout) {
  const std::string elsewhere = folder_.File("elsewhere");
  std::filesystem::create_directory(elsewhere);
  const auto body = [](JobRank& rank, Checkpointing& checkpointing) {
    checkpointing.Save({.step = 0});
    checkpointing.Flush();
    rank.strategy().Finish();
  };
  EXPECT_THAT(OnTwoRanks(body, elsewhere), Each(IsEmpty()));
  EXPECT_THAT(Told(),
              AllOf(HasSubstr("\"ok\":false"), HasSubstr("(is it the same folder on all machines?)")));
}

TEST_F(CheckpointingTest, WhoWaitsForAPartOfALostRankEndsSoon) {
  const auto start = std::chrono::steady_clock::now();
  OnTwoRanks([](JobRank& rank, Checkpointing& checkpointing) {
    if (rank.rank() == 1) throw CollectiveLost("gone");
    checkpointing.Save({.step = 0});
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "well before the deadline";
  EXPECT_THAT(Told(), HasSubstr("the training ended before it was there"));
}

TEST_F(CheckpointingTest, WhoWaitsForItToBeWrittenIsLetGoWhenOthersAreLost) {
  const auto thrown = OnTwoRanks([](JobRank& rank, Checkpointing& checkpointing) {
    if (rank.rank() == 1) throw CollectiveLost("gone");
    checkpointing.Save({.step = 0});
    std::thread told([&] { checkpointing.Abort(); });
    EXPECT_THROW(checkpointing.Flush(), CollectiveLost);
    told.join();
    EXPECT_THROW(checkpointing.Save({.step = 1}), CollectiveLost);
  });
  EXPECT_EQ(thrown[0], "");
}

}  // namespace
}  // namespace lockstep::trainer
