#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/parameter_server/served_job.h"

// Workers, servers and an evaluator over real connections.
namespace lockstep::testing {
namespace {

using trainer::parameter_server::Client;
using trainer::parameter_server::Commit;
using trainer::parameter_server::PeerRole;
using trainer::parameter_server::Task;
using trainer::parameter_server::Work;

void ExpectEverySampleOnceAnEpoch(const ServedThreads& run) {
  const auto& board = run.job().board;
  std::set<std::tuple<int64_t, int64_t>> seen;
  int64_t samples = 0;
  for (const auto& update : run.updates()) {
    EXPECT_TRUE(seen.insert({update.epoch, update.first}).second) << update.epoch << " " << update.first;
    samples += update.count;
  }
  EXPECT_EQ(samples, board.samples * board.epochs);
}

void ExpectAsAlone(const ServedThreads& run) {
  const Alone alone = TrainAlone(run.job());
  const auto updates = run.updates();
  ASSERT_EQ(updates.size(), alone.losses.size());
  for (size_t i = 0; i < updates.size(); ++i)
    EXPECT_EQ(updates[i].loss, alone.losses[i]) << "update " << i + 1;
  EXPECT_EQ(run.parameters(), alone.parameters);
}

TEST(ServedTest, ServersAndWorkersInAnyNumberTrainAsOneDoes) {
  for (const int servers : {1, 2, 3}) {
    ServedJob job{.servers = servers, .workers = 3};
    ServedThreads run(job);
    for (int s = 0; s < servers; ++s) run.StartServer(s);
    for (int w = 0; w < 3; ++w) run.StartWorker(w);
    EXPECT_EQ(run.AwaitEnd(), "finished");
    run.JoinWorkers();
    ExpectAsAlone(run);
  }
}

TEST(ServedTest, BackupsChangeNotABit) {
  ServedJob job{.workers = 4};
  job.board.parts = 2;
  ServedThreads run(job);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  for (int w = 0; w < 4; ++w) run.StartWorker(w);
  EXPECT_EQ(run.AwaitEnd(), "finished");
  run.JoinWorkers();
  ExpectAsAlone(run);
}

TEST(ServedTest, AWorkerThatIsLostInItsBatchCostsNothingAndMayBeReplaced) {
  ServedThreads run({.workers = 3});
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  {
    const auto lost = run.NewClient(PeerRole::kWorker, 1);
    Work work;
    while (work.task != Task::kBatch) work = lost->NextWork();
    std::vector<float> parameters(static_cast<size_t>(run.layout().total));
    EXPECT_TRUE(lost->Pull(work, parameters).valid);
  }
  run.StartWorker(0);
  ASSERT_TRUE(run.AwaitVersion(5));
  run.StartWorker(2);
  run.StartWorker(1);
  EXPECT_EQ(run.AwaitEnd(), "finished");
  run.JoinWorkers();
  ExpectAsAlone(run);
}

TEST(ServedTest, ALostServerIsBackAtItsLastStateAndNothingIsLostOrTwice) {
  for (const int victim : {0, 1}) {
    ServedJob job{.workers = 3};
    job.board.epochs = 12;
    job.save_every = 7;
    ServedThreads run(job);
    for (int s = 0; s < 2; ++s) run.StartServer(s);
    for (int w = 0; w < 3; ++w) run.StartWorker(w);
    for (const int64_t version : {10, 40}) {
      ASSERT_TRUE(run.AwaitVersion(version));
      run.LoseServer(victim);
      run.StartServer(victim);
    }
    EXPECT_EQ(run.AwaitEnd(), "finished");
    run.JoinWorkers();
    EXPECT_GT(run.undone(), 0) << "neither loss cost an update: this test shows nothing";
    ExpectAsAlone(run);
  }
}

TEST(ServedTest, AsynchronousWorkersNeverWaitForASlowOne) {
  ServedJob job{.workers = 3};
  job.board.synchronous = false;
  job.board.parts = 1;
  job.board.epochs = 6;
  ServedThreads run(job);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  // The slow one has its first batch, and keeps it until the others have done all the rest.
  const auto slow = run.NewClient(PeerRole::kWorker, 0);
  std::vector<float> parameters(static_cast<size_t>(run.layout().total)), gradients(parameters.size());
  Work work;
  while (work.task != Task::kBatch) work = slow->NextWork();
  const Client::Fetched fetched = slow->Pull(work, parameters);
  ASSERT_TRUE(fetched.valid);
  run.StartWorker(1);
  run.StartWorker(2);
  const int64_t all = 9 * 6;
  ASSERT_TRUE(run.AwaitVersion(all - 1));
  Commit report = ComputeGradient(parameters, work, &gradients);
  report.version = fetched.version;
  EXPECT_TRUE(slow->Push(work, gradients, report));
  while (work.task != Task::kEnd) {
    work = slow->NextWork();
    if (work.task == Task::kEvaluate) slow->HaveParameters();
  }
  slow->Leave();
  EXPECT_EQ(run.AwaitEnd(), "finished");
  run.JoinWorkers();
  EXPECT_EQ(run.CountsOf(1) + run.CountsOf(2), all - 1);
  ExpectEverySampleOnceAnEpoch(run);
  EXPECT_EQ(run.updates().back().age, all - 1);
}

TEST(ServedTest, AGradientThatIsTooOldIsDroppedCountedAndItsBatchDoneByAnother) {
  ServedJob job{.workers = 2};
  job.board.synchronous = false;
  job.board.parts = 1;
  job.board.max_gradient_age = 3;
  ServedThreads run(job);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  const auto slow = run.NewClient(PeerRole::kWorker, 0);
  std::vector<float> parameters(static_cast<size_t>(run.layout().total)), gradients(parameters.size());
  Work work;
  while (work.task != Task::kBatch) work = slow->NextWork();
  const Client::Fetched fetched = slow->Pull(work, parameters);
  run.StartWorker(1, [&](const Work& next) {
    // Held up for as long as the slow one has not brought its gradient, which is too old then.
    if (next.version == 4) {
      EXPECT_TRUE(run.store().Get("brought", Soon()).ok());
    }
  });
  ASSERT_TRUE(run.AwaitVersion(4));
  Commit report = ComputeGradient(parameters, work, &gradients);
  report.version = fetched.version;
  EXPECT_FALSE(slow->Push(work, gradients, report));
  EXPECT_TRUE(run.store().Set("brought", "", Soon()).ok());
  while (work.task != Task::kEnd) {
    work = slow->NextWork();
    if (work.task == Task::kEvaluate) slow->HaveParameters();
    if (work.task != Task::kBatch) continue;
    const Client::Fetched newer = slow->Pull(work, parameters);
    Commit next = ComputeGradient(parameters, work, &gradients);
    next.version = newer.version;
    slow->Push(work, gradients, next);
  }
  slow->Leave();
  EXPECT_EQ(run.AwaitEnd(), "finished");
  run.JoinWorkers();
  ExpectEverySampleOnceAnEpoch(run);
  int64_t dropped = 0;
  for (const auto& update : run.updates()) {
    dropped += update.dropped;
    EXPECT_LE(update.age, 3);
  }
  EXPECT_GE(dropped, 1);
}

TEST(ServedTest, AnEvaluatorGetsTheParametersOfEachEpochsEnd) {
  ServedJob job{.workers = 2, .evaluator = true};
  job.board.parts = 2;
  ServedThreads run(job);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  for (int w = 0; w < 2; ++w) run.StartWorker(w);
  const auto evaluator = run.NewClient(PeerRole::kEvaluator, 0);
  std::vector<float> parameters(static_cast<size_t>(run.layout().total));
  std::vector<int64_t> epochs;
  Work work;
  while (true) {
    work = evaluator->NextWork();
    if (work.task == Task::kEnd) break;
    if (work.task != Task::kEvaluate) continue;
    const Client::Fetched fetched = evaluator->Pull(work, parameters);
    EXPECT_TRUE(fetched.valid);
    epochs.push_back(work.epoch);
    EXPECT_EQ(fetched.version, (work.epoch + 1) * 9);
    EXPECT_EQ(work.test, work.epoch == 2);
    evaluator->HaveParameters();
  }
  evaluator->Leave();
  EXPECT_EQ(run.AwaitEnd(), "finished");
  run.JoinWorkers();
  EXPECT_EQ(epochs.back(), 2);
  EXPECT_EQ(parameters, run.parameters());
}

TEST(ServedTest, AskedToStopTheStateIsSavedAndGoneOnFrom) {
  ServedJob job{.workers = 2};
  job.board.parts = 2;
  job.board.epochs = 10;
  ServedThreads run(job);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  for (int w = 0; w < 2; ++w) run.StartWorker(w);
  ASSERT_TRUE(run.AwaitVersion(12));
  run.AskToStop();
  EXPECT_EQ(run.AwaitEnd(), "stopped");
  run.JoinWorkers();
  for (int s = 0; s < 2; ++s) run.LoseServer(s);
  for (int s = 0; s < 2; ++s) run.StartServer(s);
  for (int w = 0; w < 2; ++w) run.StartWorker(w);
  ASSERT_TRUE(run.AwaitVersion(90));
  run.JoinWorkers();
  EXPECT_EQ(run.undone(), 0);
  ExpectAsAlone(run);
}

TEST(ServedTest, WhoseModelDiffersIsRefused) {
  ServedThreads run({.servers = 1, .workers = 1});
  run.StartServer(0);
  const trainer::parameter_server::PeerOptions other{
      .self = run.Self(0), .who = {.role = PeerRole::kWorker, .index = 0, .fingerprint = 8}};
  EXPECT_THROW(trainer::parameter_server::ConnectToServer(other, run.store(), 0), trainer::BadModel);
}

}  // namespace
}  // namespace lockstep::testing
