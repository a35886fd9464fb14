#include "launcher/telemetry/hang_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ostream>

#include "tests/unit/telemetry/fake_time.h"

namespace lockstep::telemetry {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RankProgress Stepping(int rank, int64_t step, double at, RankPhase phase = RankPhase::kTraining,
                      char state = 0) {
  return {.rank = rank,
          .phase = phase,
          .step = step,
          .stepped = true,
          .last_progress = At(at),
          .process_state = state};
}
RankProgress Starting(int rank, RankPhase phase, double at) {
  return {
      .rank = rank, .phase = phase, .step = 0, .stepped = false, .last_progress = At(at), .process_state = 0};
}

struct LimitCase {
  const char* what;
  HangRule rule;
  RankProgress rank;  // its last progress is at 0
  double median;
  double limit;  // seconds; 0: for ever
};

void PrintTo(const LimitCase& c, std::ostream* out) { *out << c.limit << " s"; }

class HangLimitTest : public ::testing::TestWithParam<LimitCase> {};

TEST_P(HangLimitTest, HangsAtTheLimitAndNotBefore) {
  const LimitCase& c = GetParam();
  const auto early = AssessHang(c.rule, {c.rank}, c.median, At(c.limit - 0.001));
  EXPECT_FALSE(early.hang);
  if (c.limit == 0) {
    EXPECT_FALSE(early.next_check);
    EXPECT_FALSE(AssessHang(c.rule, {c.rank}, c.median, At(1e6)).hang);
    return;
  }
  ASSERT_TRUE(early.next_check);
  EXPECT_EQ(*early.next_check, At(c.limit));
  const auto late = AssessHang(c.rule, {c.rank}, c.median, At(c.limit));
  ASSERT_TRUE(late.hang);
  EXPECT_THAT(late.hang->lagging, ElementsAre(c.rank.rank));
}

const HangRule kTrainer = HangRule::ForTrainer(std::nullopt);
const HangRule kTrainer60 = HangRule::ForTrainer(seconds(60));
const HangRule kProgram = HangRule::ForProgram(std::nullopt);
const HangRule kProgram60 = HangRule::ForProgram(seconds(60));

INSTANTIATE_TEST_SUITE_P(
    Rules, HangLimitTest,
    ::testing::Values(
        LimitCase{"TrainerWithQuickStepsHasFiveSeconds", kTrainer, Stepping(0, 9, 0), 0.002, 5},
        LimitCase{"TrainerWithSlowStepsHasTwentyOfThem", kTrainer, Stepping(0, 9, 0), 2, 40},
        LimitCase{"TheManifestDecides", kTrainer60, Stepping(0, 9, 0), 2, 60},
        LimitCase{"InitializingHas300", kTrainer60, Starting(0, RankPhase::kInitializing, 0), 0, 300},
        LimitCase{"EvaluatingHas300", kTrainer, Stepping(0, 9, 0, RankPhase::kEvaluating), 0.002, 300},
        LimitCase{"CheckpointingHas300", kTrainer60, Stepping(0, 9, 0, RankPhase::kCheckpointing), 0.002,
                  300},
        LimitCase{"AFirstStepHas300", kTrainer, Starting(0, RankPhase::kTraining, 0), 0, 300},
        LimitCase{"AFirstStepHasWhatTheManifestSays", kTrainer60, Starting(0, RankPhase::kTraining, 0), 0,
                  60},
        LimitCase{"ATrainerThatSaysNothingHas300", kTrainer60, Starting(0, RankPhase::kStarting, 0), 0, 300},
        LimitCase{"AProgramThatReportsNothingNeverHangs", kProgram60, Starting(0, RankPhase::kStarting, 0), 0,
                  0},
        LimitCase{"ARankThatWaitsForTheNextGenerationNeverHangs", kTrainer,
                  Stepping(0, 9, 0, RankPhase::kRegrouping), 0.002, 0},
        LimitCase{"AReadyProgramWithoutStepsNeverHangs", kProgram60, Starting(0, RankPhase::kTraining, 0), 0,
                  0},
        LimitCase{"AProgramThatReportsStepsHas300", kProgram, Stepping(0, 9, 0), 0.002, 300},
        LimitCase{"AProgramsManifestDecides", kProgram60, Stepping(0, 9, 0), 0.002, 60},
        LimitCase{"AProgramThatAnnouncesItsEvaluationHas300", kProgram60,
                  Stepping(0, 9, 0, RankPhase::kEvaluating), 0.002, 300}),
    [](const auto& info) { return std::string(info.param.what); });

TEST(HangDetectorTest, TheOneThatIsBehindIsNamed) {
  const auto result =
      AssessHang(kTrainer, {Stepping(0, 118, 9), Stepping(1, 118, 9), Stepping(2, 117, 8)}, 0.1, At(14));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(2));
  EXPECT_EQ(result.hang->message, "no step for 5.0 s: rank 2 is at step 117 (Training), the others at 118");
}

TEST(HangDetectorTest, SeveralMayLag) {
  const auto result = AssessHang(
      kTrainer, {Stepping(0, 118, 9), Stepping(1, 117, 8), Stepping(2, 117, 8), Stepping(3, 119, 9)}, 0.1,
      At(14));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(1, 2));
  EXPECT_THAT(result.hang->message,
              HasSubstr("ranks 1, 2 are at step 117 (Training), the others at 118 to 119"));
}

TEST(HangDetectorTest, AmongEqualsTheOneSilentForLongest) {
  const auto result =
      AssessHang(kTrainer, {Stepping(0, 7, 9), Stepping(1, 7, 8.9), Stepping(2, 7, 9.1)}, 0.1, At(20));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(1));
  EXPECT_THAT(result.hang->message,
              HasSubstr("all ranks are at step 7 (Training), rank 1 has been silent for longest"));
}

TEST(HangDetectorTest, AStoppedProcessIsToBlameEvenWhenItIsNotBehind) {
  const auto result = AssessHang(
      kTrainer, {Stepping(0, 7, 9), Stepping(1, 8, 9.2, RankPhase::kTraining, 'T'), Stepping(2, 7, 8)}, 0.1,
      At(20));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(1));
  EXPECT_THAT(result.hang->message, HasSubstr("rank 1 is at step 8 (stopped by a signal), the others at 7"));
}

TEST(HangDetectorTest, AProgramWithoutStepsIsAliveAsLongAsOneOfItsRanksWrites) {
  std::vector<RankProgress> ranks = {Starting(0, RankPhase::kStarting, 0),
                                     Starting(1, RankPhase::kStarting, 0),
                                     Starting(2, RankPhase::kStarting, 0)};
  ranks[0].last_output = At(100);
  ranks[1].last_output = At(90);
  EXPECT_EQ(*AssessHang(kProgram60, ranks, 0, At(150)).next_check, At(160));
  const auto hung = AssessHang(kProgram60, ranks, 0, At(160));
  ASSERT_TRUE(hung.hang);
  EXPECT_THAT(hung.hang->lagging, ElementsAre(1)) << "rank 2 never wrote anything";
  EXPECT_THAT(hung.hang->message, HasSubstr("no output for 60.0 s: all ranks are before its first step"));
  EXPECT_FALSE(AssessHang(kProgram, ranks, 0, At(1e6)).hang) << "the manifest gives no deadline";
  ranks[2] = Stepping(2, 7, 159);
  EXPECT_EQ(*AssessHang(kProgram60, ranks, 0, At(160)).next_check, At(219))
      << "steps count, where there are any";
}

TEST(HangDetectorTest, TheOthersMayWaitForOneThatIsBusy) {
  std::vector<RankProgress> ranks = {Stepping(0, 100, 10, RankPhase::kCheckpointing), Stepping(1, 100, 10),
                                     Stepping(2, 100, 10)};
  const auto patient = AssessHang(kTrainer, ranks, 0.1, At(200));
  EXPECT_FALSE(patient.hang);
  EXPECT_EQ(*patient.next_check, At(310));
  const auto hung = AssessHang(kTrainer, ranks, 0.1, At(310));
  ASSERT_TRUE(hung.hang);
  EXPECT_THAT(hung.hang->lagging, ElementsAre(0));
  EXPECT_THAT(hung.hang->message, HasSubstr("rank 0 is at step 100 (Checkpointing), the others at 100"));
}

TEST(HangDetectorTest, ARankThatNeverArrivedIsBehindAllOthers) {
  const auto result =
      AssessHang(kTrainer, {Stepping(0, 1, 1), Starting(1, RankPhase::kInitializing, 0)}, 0.1, At(301));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(1));
  EXPECT_THAT(result.hang->message,
              HasSubstr("rank 1 is before its first step (Initializing), the others at 1"));
}

TEST(HangDetectorTest, OfAProgramOnlyTheRanksThatReportAreJudged) {
  const auto result =
      AssessHang(kProgram60, {Stepping(0, 5, 0), Starting(1, RankPhase::kStarting, 0)}, 0.1, At(60));
  ASSERT_TRUE(result.hang);
  EXPECT_THAT(result.hang->lagging, ElementsAre(0));
}

TEST(HangDetectorTest, NobodyLeftIsNoHang) {
  const auto result = AssessHang(kTrainer, {}, 0.1, At(1e6));
  EXPECT_FALSE(result.hang);
  EXPECT_FALSE(result.next_check);
}

TEST(HangDetectorTest, ReadsTheStateOfAProcess) {
  EXPECT_EQ(ReadProcessState(::getpid()), 'R');
  EXPECT_EQ(ReadProcessState(0), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(ReadProcessState(child), 'T');
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  EXPECT_EQ(ReadProcessState(child), 0);
}

}  // namespace
}  // namespace lockstep::telemetry
