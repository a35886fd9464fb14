#include "trainer/parameter_server/work_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lockstep::trainer::parameter_server {
namespace {

using ::testing::ElementsAre;
using Options = WorkBoard::Options;
using std::chrono::seconds;

constexpr WorkBoard::TimePoint kNow{};

Options Synchronous(int workers, int parts) {
  return {.samples = 100, .batch_size = 12, .epochs = 2, .parts = parts, .workers = workers};
}
Options Asynchronous(int workers) {
  return {.samples = 100, .batch_size = 12, .epochs = 2, .synchronous = false, .workers = workers};
}

// Notes which samples updates were made of, and that each comes once an epoch.
struct Coverage {
  explicit Coverage(const Options& options)
      : counts(static_cast<size_t>(options.epochs), std::vector<int>(static_cast<size_t>(options.samples))) {}
  void Add(const WorkBoard::Update& update) {
    for (int64_t i = update.batch.first; i < update.batch.end(); ++i) {
      ++counts[static_cast<size_t>(update.epoch)][static_cast<size_t>(i)];
    }
  }
  bool whole() const {
    for (const auto& epoch : counts) {
      for (const int count : epoch) {
        if (count != 1) return false;
      }
    }
    return true;
  }
  std::vector<std::vector<int>> counts;
};

TEST(WorkBoardTest, APartOfTheBatchForEachWorker) {
  WorkBoard board(Synchronous(3, 3));
  const auto a = board.Take(0, kNow), b = board.Take(1, kNow), c = board.Take(2, kNow);
  EXPECT_EQ(a->samples, (data::Range{0, 4}));
  EXPECT_EQ(b->samples, (data::Range{4, 4}));
  EXPECT_EQ(c->samples, (data::Range{8, 4}));
  EXPECT_EQ(a->batch_samples, 12);
  EXPECT_FALSE(board.Take(0, kNow));  // nothing is left of it
}

TEST(WorkBoardTest, AnUpdateOfAllPartsInTheirOrder) {
  WorkBoard board(Synchronous(2, 2));
  const auto a = board.Take(0, kNow), b = board.Take(1, kNow);
  const auto first = board.Commit(1, b->lease, {.loss_sum = 6, .correct = 2, .penalty = 9});
  EXPECT_TRUE(first.counts);
  EXPECT_FALSE(first.update);
  const auto second = board.Commit(0, a->lease, {.loss_sum = 18, .correct = 3, .penalty = 0.5});
  ASSERT_TRUE(second.update);
  EXPECT_THAT(second.update->leases, ElementsAre(a->lease, b->lease));
  EXPECT_EQ(second.update->version, 1);
  EXPECT_EQ(second.update->batch, (data::Range{0, 12}));
  EXPECT_DOUBLE_EQ(second.update->loss, 24.0 / 12 + 0.5);
  EXPECT_EQ(board.Take(0, kNow)->samples, (data::Range{12, 6}));
}

TEST(WorkBoardTest, ABackupComputesWhatAnotherHasAndTheSecondIsDropped) {
  WorkBoard board(Synchronous(3, 2));
  const auto a = board.Take(0, kNow), b = board.Take(1, kNow), c = board.Take(2, kNow);
  EXPECT_EQ(c->samples, a->samples);
  EXPECT_TRUE(board.Commit(2, c->lease, {}).counts);
  EXPECT_TRUE(board.Commit(1, b->lease, {}).update);
  EXPECT_FALSE(board.Commit(0, a->lease, {}).counts);
  EXPECT_EQ(board.version(), 1);
}

TEST(WorkBoardTest, ALostWorkersPartIsTakenByAnother) {
  WorkBoard board(Synchronous(2, 2));
  const auto a = board.Take(0, kNow), b = board.Take(1, kNow);
  EXPECT_TRUE(board.Commit(0, a->lease, {}).counts);
  EXPECT_FALSE(board.Take(0, kNow));
  EXPECT_THAT(board.Forget(1), ElementsAre(b->lease));
  const auto again = board.Take(0, kNow);
  EXPECT_EQ(again->samples, b->samples);
  EXPECT_FALSE(board.Commit(1, b->lease, {}).counts);
  EXPECT_TRUE(board.Commit(0, again->lease, {}).update);
}

TEST(WorkBoardTest, WhatTakesTooLongIsGivenToAnotherTooAndWhoeverIsFirstHasDoneIt) {
  for (const bool synchronous : {true, false}) {
    Options options = synchronous ? Synchronous(2, 2) : Asynchronous(2);
    options.lease_time = seconds(10);
    WorkBoard board(options);
    const auto slow = board.Take(0, kNow);
    if (synchronous) board.Commit(1, board.Take(1, kNow)->lease, {});
    const auto before = board.Take(1, kNow + seconds(9));
    EXPECT_TRUE(!before || before->samples != slow->samples);
    const auto other = board.Take(1, kNow + seconds(10));
    ASSERT_TRUE(other);
    EXPECT_EQ(other->samples, slow->samples);
    EXPECT_TRUE(board.Commit(0, slow->lease, {}).counts);
    EXPECT_FALSE(board.Commit(1, other->lease, {}).counts);
  }
}

TEST(WorkBoardTest, OnlyWhoHasALeaseCommitsIt) {
  WorkBoard board(Asynchronous(2));
  const auto a = board.Take(0, kNow);
  EXPECT_FALSE(board.Commit(1, a->lease, {}).counts);
  EXPECT_FALSE(board.Commit(0, a->lease + 1, {}).counts);
  EXPECT_TRUE(board.Commit(0, a->lease, {}).counts);
  EXPECT_FALSE(board.Commit(0, a->lease, {}).counts);
}

TEST(WorkBoardTest, NobodyWaitsWhenAsynchronous) {
  WorkBoard board(Asynchronous(2));
  const auto slow = board.Take(0, kNow);
  int64_t updates = 0;
  while (const auto work = board.Take(1, kNow)) {
    const auto outcome = board.Commit(1, work->lease, {.version = work->version});
    ASSERT_TRUE(outcome.update);
    ++updates;
  }
  EXPECT_EQ(updates, board.total_batches() - 1);  // everything but what the slow one has, epochs and all
  EXPECT_FALSE(board.done());
  const auto outcome = board.Commit(0, slow->lease, {.version = slow->version});
  ASSERT_TRUE(outcome.update);
  EXPECT_EQ(outcome.update->age, updates);
  EXPECT_TRUE(board.done());
}

TEST(WorkBoardTest, AnOldGradientIsDroppedAndItsBatchDoneAgain) {
  Options options = Asynchronous(2);
  options.max_gradient_age = 2;
  WorkBoard board(options);
  const auto slow = board.Take(0, kNow);
  for (int i = 0; i < 2; ++i) board.Commit(1, board.Take(1, kNow)->lease, {.version = board.version()});
  const auto last = board.Take(1, kNow);
  EXPECT_TRUE(board.Commit(1, last->lease, {.version = 0}).counts);  // two old: not too old
  EXPECT_FALSE(board.Commit(0, slow->lease, {.version = 0}).counts);
  EXPECT_EQ(board.version(), 3);
  EXPECT_EQ(board.Take(1, kNow)->samples, slow->samples);
}

TEST(WorkBoardTest, EpochsEndWhenAllOfTheirBatchesAreDone) {
  WorkBoard board(Asynchronous(2));
  const auto slow = board.Take(0, kNow);
  while (const auto work = board.Take(1, kNow)) {
    const auto outcome = board.Commit(1, work->lease, {.loss_sum = 12, .correct = 1});
    EXPECT_EQ(outcome.update->ends_epoch, outcome.update->epoch == 1 && outcome.update->batch.end() == 100);
  }
  const auto outcome = board.Commit(0, slow->lease, {.loss_sum = 12, .correct = 1});
  EXPECT_TRUE(outcome.update->ends_epoch);
  EXPECT_EQ(outcome.update->epoch, 0);
  EXPECT_EQ(outcome.update->epoch_totals.samples, 100);
  EXPECT_EQ(outcome.update->epoch_totals.correct, 9);
}

// Workers that come, go, are slow, and states that are restored: whatever happens, each sample of each epoch
// is part of exactly one update that counts.
class WorkBoardChaosTest : public ::testing::TestWithParam<int> {};

TEST_P(WorkBoardChaosTest, EverySampleCountsOnceAnEpoch) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  Options options =
      GetParam() % 2 == 0 ? Synchronous(4, 1 + static_cast<int>(random() % 4)) : Asynchronous(4);
  options.epochs = 3;
  options.lease_time = seconds(20);
  if (GetParam() % 4 == 1) options.max_gradient_age = 3;
  WorkBoard board(options);
  Coverage coverage(options);
  WorkBoard::State saved = board.state();
  Coverage saved_coverage = coverage;
  std::map<int, WorkBoard::Work> held;
  WorkBoard::TimePoint now = kNow;
  for (int i = 0; i < 100'000 && !board.done(); ++i) {
    now += seconds(1);
    const int worker = static_cast<int>(random() % 4);
    if (chance(5)) {
      board.Forget(worker);
      held.erase(worker);
    } else if (chance(2)) {
      saved = board.state();
      saved_coverage = coverage;
    } else if (chance(1)) {
      board = WorkBoard(options, saved);
      coverage = saved_coverage;
      held.clear();
    } else if (!held.contains(worker)) {
      board.Forget(worker);
      if (const auto work = board.Take(worker, now)) held.emplace(worker, *work);
    } else if (chance(worker == 0 ? 10 : 60)) {
      const WorkBoard::Work work = held.at(worker);
      held.erase(worker);
      const auto outcome = board.Commit(worker, work.lease, {.version = work.version});
      if (outcome.update) coverage.Add(*outcome.update);
    }
  }
  EXPECT_TRUE(board.done());
  EXPECT_EQ(board.version(), board.total_batches());
  EXPECT_TRUE(coverage.whole());
  EXPECT_TRUE(board.state().missing.empty());
  EXPECT_TRUE(board.state().epochs.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, WorkBoardChaosTest, ::testing::Range(0, 40));

}  // namespace
}  // namespace lockstep::trainer::parameter_server
