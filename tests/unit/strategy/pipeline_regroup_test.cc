#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "tests/unit/collectives/fork_store.h"
#include "tests/unit/collectives/processes.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/collectives/local/shared_segment.h"
#include "trainer/error.h"

// What the ranks of a pipeline still have when one of them is killed.
namespace lockstep::trainer::strategy {
namespace {

using ::lockstep::testing::ForkStore;
using ::lockstep::testing::Job;
using ::lockstep::testing::JobRank;
using ::lockstep::testing::Meeting;
using ::lockstep::testing::Processes;
using ::lockstep::testing::RunRanks;
using ::lockstep::testing::Soon;
using ::lockstep::testing::WithMomentumAndPenalty;
using ::lockstep::testing::WithTheWholeRecipe;
using ::testing::Each;
using ::testing::IsEmpty;
using enum PipelineSchedule;

constexpr int64_t kSteps = 20;
constexpr int64_t kLast = 6;  // the step, counted from 0, in which a rank is killed

struct Case {
  std::string name;
  Job job;
};

Job PipelineJob(int ranks, std::vector<LayerRange> stages, PipelineSchedule schedule = kGPipe) {
  return {.local_size = ranks,
          .kind = Kind::kPipeline,
          .pipeline = {.stages = std::move(stages), .micro_batches = 4, .schedule = schedule}};
}

std::vector<Case> ClippedCases() {
  const std::vector<LayerRange> two{{0, 0}, {1, 2}};
  return {{"TwoStages1F1B", WithTheWholeRecipe(PipelineJob(2, two, kOneForwardOneBackward))},
          {"TwoPipelinesOfTwo", WithTheWholeRecipe(PipelineJob(4, two))}};
}

std::vector<Case> Cases() {
  const std::vector<LayerRange> two{{0, 0}, {1, 2}}, three{{0, 0}, {1, 1}, {2, 2}};
  Job normalised = PipelineJob(2, {{0, 3}, {4, 8}}, kOneForwardOneBackward);
  normalised.normalised = true;
  normalised.synchronised = false;
  std::vector<Case> cases{{"TwoStages", PipelineJob(2, two)},
                          {"ThreeStages1F1B", PipelineJob(3, three, kOneForwardOneBackward)},
                          {"TwoPipelinesOfTwo", PipelineJob(4, two, kOneForwardOneBackward)},
                          {"Momentum", WithMomentumAndPenalty(PipelineJob(2, two))},
                          {"BatchNormalization", normalised}};
  for (const Case& each : ClippedCases()) cases.push_back({"Clipped" + each.name, each.job});
  return cases;
}

// Where in a step something is done to a rank.
enum class Moment {
  kBefore,        // the step
  kNorm,          // its gradients are complete, and it is to say by how long they are together
  kNormed,        // and has worked that out
  kPieceKept,     // the first piece of its part is about to be updated
  kPieceHalf,     // half of the piece is updated
  kPieceUpdated,  // all of it, which the rank has not said yet
  kPartHalf,      // half of its last piece
  kPartUpdated,   // all of its part, which the rank has not said yet
};

using Hook = std::function<void(Moment, int64_t step)>;

// Calls `hook` where a step comes to each of its moments.
class HookedOptimizer final : public Optimizer {
 public:
  HookedOptimizer(std::unique_ptr<Optimizer> optimizer, Hook hook)
      : optimizer_(std::move(optimizer)), hook_(std::move(hook)) {}

  // What the rank updates in a step.
  void ExpectPart(collectives::Range part) { part_ = part; }

  const std::vector<std::string>& slot_names() const override { return optimizer_->slot_names(); }
  int average_slot() const override { return optimizer_->average_slot(); }
  void Update(int64_t step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
              std::span<const UpdateRange> ranges) override {
    const bool first = begin == static_cast<int64_t>(part_.begin);
    const bool last = end == static_cast<int64_t>(part_.end);
    if (first) hook_(Moment::kPieceKept, step - 1);
    const int64_t middle = begin + (end - begin) / 2;
    optimizer_->Update(step, buffers, begin, middle, ranges);
    if (first) hook_(Moment::kPieceHalf, step - 1);
    if (last) hook_(Moment::kPartHalf, step - 1);
    optimizer_->Update(step, buffers, middle, end, ranges);
    if (first) hook_(Moment::kPieceUpdated, step - 1);
    if (last) hook_(Moment::kPartUpdated, step - 1);
  }
  bool clips_by_norm() const override { return optimizer_->clips_by_norm(); }
  void AddPenalties(const float* parameters, float* gradients, int64_t begin, int64_t end,
                    std::span<const UpdateRange> ranges) override {
    optimizer_->AddPenalties(parameters, gradients, begin, end, ranges);
  }
  double SquaredNorm(const float* parameters, float* gradients, int64_t begin, int64_t end,
                     std::span<const UpdateRange> ranges) override {
    const int64_t step = norms_++;
    hook_(Moment::kNorm, step);
    const double norm = optimizer_->SquaredNorm(parameters, gradients, begin, end, ranges);
    hook_(Moment::kNormed, step);
    return norm;
  }
  StepRates Rates(int64_t step) const override { return optimizer_->Rates(step); }
  double learning_rate(int64_t step) const override { return optimizer_->learning_rate(step); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  Hook hook_;
  collectives::Range part_;
  int64_t norms_ = 0;
};

// A training that nobody disturbs: its states after 0, 1 … steps, and what each step lost.
struct Course {
  std::vector<WholeState> states;
  std::vector<double> losses;
};

Course Undisturbed(const Job& job) {
  Course course;
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    const auto note = [&] {
      WholeState state{.slots =
                           std::vector<std::vector<float>>(static_cast<size_t>(rank.optimizer().slots()))};
      rank.strategy().Export(rank.model(), rank.strategy().ShareOut(rank.model(), 1),
                             r == 0 ? &state : nullptr);
      if (r == 0) course.states.push_back(std::move(state));
    };
    note();
    for (int64_t step = 0; step < kSteps; ++step) {
      const double loss = rank.Step(step).loss;
      if (r == 0) course.losses.push_back(loss);
      note();
    }
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
  return course;
}

// All of it in one row.
std::vector<float> Flat(const WholeState& state) {
  std::vector<float> all = state.parameters;
  for (const auto& slot : state.slots) all.insert(all.end(), slot.begin(), slot.end());
  all.insert(all.end(), state.state.begin(), state.state.end());
  return all;
}

// What a survivor says that it has.
struct Said {
  int64_t step = -1;
  bool finished = false;
  double loss = 0;
  std::vector<float> state;
};

// A job of processes of which one is killed; what they share with the test.
class DisturbedJob {
 public:
  struct Board {
    std::atomic<int64_t> step;   // steps that rank 0 has done
    std::atomic<int> normed[8];  // by rank: its pid, once it has its norm in step kLast
    int64_t said[8];             // by rank: Said
    bool finished[8];
    double loss[8];
  };

  DisturbedJob(const Job& job, const Course& course)
      : job_(job),
        floats_(Flat(course.states[0]).size()),
        board_segment_(collectives::SharedSegment::Create("board", sizeof(Board))),
        states_(collectives::SharedSegment::Create("states", floats_ * sizeof(float) * 8)) {
    for (int64_t& step : board().said) step = -1;
  }

  Board& board() { return board_segment_.View<Board>(0, 1)[0]; }

  // Each rank calls `hook(rank, moment, step)`; with `evaluates` they evaluate between the steps.
  void Start(const std::function<void(int, Moment, int64_t)>& hook, bool evaluates) {
    processes_.emplace(0, job_.size(), [this, hook, evaluates](int r) { Run(r, hook, evaluates); });
  }
  void Kill(int rank) { processes_->Kill(static_cast<size_t>(rank)); }
  // What each has said when all have ended, all but the victim well.
  std::vector<Said> Gather(int victim) {
    std::vector<Said> all(static_cast<size_t>(job_.size()));
    for (int r = 0; r < job_.size(); ++r) {
      const int status = processes_->Wait(static_cast<size_t>(r));
      if (r == victim) {
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
        continue;
      }
      EXPECT_EQ(status, 0) << "rank " << r;
      const auto state = StateOf(r);
      all[static_cast<size_t>(r)] = {.step = board().said[r],
                                     .finished = board().finished[r],
                                     .loss = board().loss[r],
                                     .state = {state.begin(), state.end()}};
    }
    return all;
  }

 private:
  std::span<float> StateOf(int rank) {
    return states_.View<float>(static_cast<size_t>(rank) * floats_ * sizeof(float), floats_);
  }

  void Run(int r, const std::function<void(int, Moment, int64_t)>& hook, bool evaluates) {
    Job mine = job_;
    HookedOptimizer* hooked = nullptr;
    mine.wrap = [&](int, std::unique_ptr<Optimizer> optimizer) {
      auto wrapped = std::make_unique<HookedOptimizer>(
          std::move(optimizer), [&hook, r](Moment moment, int64_t step) { hook(r, moment, step); });
      hooked = wrapped.get();
      return wrapped;
    };
    JobRank rank(mine, store_, nullptr, r);
    rank.Setup();
    const int pipelines = job_.shares();
    const auto floats = static_cast<size_t>(rank.model().layout().total);
    hooked->ExpectPart(collectives::PartOf(floats, r / job_.pipeline.count(), pipelines));
    try {
      for (int64_t step = 0;; ++step) {
        hook(r, Moment::kBefore, step);
        rank.Step(step);
        if (r == 0) board().step.store(step + 1);
        if (!evaluates) continue;
        const Batch batch = rank.Load(step + 100);
        const Totals some =
            rank.strategy().Evaluate(rank.model(), batch.inputs, batch.labels, batch.local_samples);
        rank.strategy().Sum(some);
        rank.strategy().L2Penalty(rank.model());
      }
    } catch (const CollectiveLost&) {
      const Committed committed = rank.strategy().TakeCommitted(rank.model()).at(0);
      const std::vector<float> state = Flat(committed.state);
      ASSERT_EQ(state.size(), floats_);
      std::copy(state.begin(), state.end(), StateOf(r).begin());
      board().finished[r] = committed.finished.has_value();
      board().loss[r] = committed.finished ? committed.finished->loss : 0;
      board().said[r] = committed.step;
    }
  }

  Job job_;
  size_t floats_;
  collectives::SharedSegment board_segment_, states_;
  ForkStore store_;
  std::optional<Processes> processes_;
};

// Whoever is left holds a step of the undisturbed training, bit for bit. Returns the highest.
int64_t ExpectStatesOf(const Course& course, const std::vector<Said>& said, int victim) {
  int64_t highest = -1;
  for (size_t r = 0; r < said.size(); ++r) {
    if (static_cast<int>(r) == victim) continue;
    const auto step = static_cast<size_t>(said[r].step);
    if (said[r].step < 0 || step >= course.states.size()) {
      ADD_FAILURE() << "rank " << r << " holds step " << said[r].step;
      continue;
    }
    EXPECT_EQ(said[r].state, Flat(course.states[step])) << "rank " << r << ", step " << step;
    if (said[r].finished) {
      EXPECT_EQ(said[r].loss, course.losses[step - 1]) << "rank " << r;
    }
    highest = std::max(highest, said[r].step);
  }
  return highest;
}

class PipelineRegroupTest : public ::testing::TestWithParam<Case> {
 protected:
  // The rank kills itself at that moment of step kLast.
  void KillAt(Moment moment, int64_t held, bool evaluates = false) {
    const Job& job = GetParam().job;
    const Course course = Undisturbed(job);
    for (const int victim : {0, job.size() - 1}) {
      SCOPED_TRACE("victim " + std::to_string(victim));
      DisturbedJob disturbed(job, course);
      disturbed.Start(
          [&](int rank, Moment at, int64_t step) {
            if (rank == victim && at == moment && step == kLast) ::kill(::getpid(), SIGKILL);
          },
          evaluates);
      EXPECT_EQ(ExpectStatesOf(course, disturbed.Gather(victim), victim), held);
    }
  }
};

TEST_P(PipelineRegroupTest, WithoutItsGradientsTheStepIsDropped) { KillAt(Moment::kBefore, kLast); }

TEST_P(PipelineRegroupTest, APieceThatIsOnlyKeptIsUpdatedByThoseWhoAreLeft) {
  KillAt(Moment::kPieceKept, kLast + 1);
}

TEST_P(PipelineRegroupTest, APieceUpdatedToAHalfIsUpdatedFromWhatWasKept) {
  KillAt(Moment::kPieceHalf, kLast + 1);
  KillAt(Moment::kPartHalf, kLast + 1);
}

TEST_P(PipelineRegroupTest, APieceThatNobodySaidIsDoneIsUpdatedAgain) {
  KillAt(Moment::kPieceUpdated, kLast + 1);
  KillAt(Moment::kPartUpdated, kLast + 1);
}

TEST_P(PipelineRegroupTest, WhoHasGoneOnToEvaluateCompletesTheStepToo) {
  KillAt(Moment::kPieceHalf, kLast + 1, /*evaluates=*/true);
  KillAt(Moment::kBefore, kLast, /*evaluates=*/true);
}

class ClippedPipelineRegroupTest : public PipelineRegroupTest {};

TEST_P(ClippedPipelineRegroupTest, WithoutItsReportTheStepIsDropped) { KillAt(Moment::kNorm, kLast); }

// The others come to their report only when the victim, which waits for it or is about to, is gone.
TEST_P(ClippedPipelineRegroupTest, WhoWaitsForTheOthersReportsMayBeLost) {
  const Job& job = GetParam().job;
  const Course course = Undisturbed(job);
  const int victim = job.size() - 1;
  DisturbedJob disturbed(job, course);
  disturbed.Start(
      [&](int rank, Moment at, int64_t step) {
        if (at != Moment::kNormed || step != kLast) return;
        std::atomic<int>& pid = disturbed.board().normed[victim];
        if (rank == victim) {
          pid.store(::getpid());
          return;
        }
        if (rank != 0) return;
        const auto give_up = Soon();
        while (pid.load() == 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
        ::kill(pid.load(), SIGKILL);
      },
      false);
  const int64_t held = ExpectStatesOf(course, disturbed.Gather(victim), victim);
  EXPECT_TRUE(held == kLast || held == kLast + 1) << held;
}

TEST_P(PipelineRegroupTest, KilledAtAnyMomentItLosesAStepAtMost) {
  const Job& job = GetParam().job;
  const Course course = Undisturbed(job);
  std::mt19937 random(11);
  for (int kill = 0; kill < 6; ++kill) {
    DisturbedJob disturbed(job, course);
    const int victim = std::uniform_int_distribution(0, job.size() - 1)(random);
    disturbed.Start(
        [&](int rank, Moment at, int64_t step) {
          if (at != Moment::kBefore || step < kSteps) return;
          if (rank == victim) ::pause();
          throw CollectiveLost("who kills came late");
        },
        kill % 2 == 1);
    const auto give_up = Soon();
    while (disturbed.board().step.load() < 2 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    const auto moment = std::chrono::steady_clock::now() +
                        std::chrono::microseconds(std::uniform_int_distribution(0, 3000)(random));
    while (std::chrono::steady_clock::now() < moment) {
    }
    const int64_t done = disturbed.board().step.load();
    disturbed.Kill(victim);
    EXPECT_GE(ExpectStatesOf(course, disturbed.Gather(victim), victim), done);
  }
}

// What a survivor holds, another has, and all go on from it.
TEST_P(PipelineRegroupTest, WhatIsHandedOnGoesOnBitForBit) {
  const Job& job = GetParam().job;
  const Course course = Undisturbed(job);
  const WholeState& held = course.states[static_cast<size_t>(kLast)];
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    WholeState state = held;
    const int holder = job.size() - 1;
    const auto hand_on = [&](std::vector<float>* floats) {
      if (r != holder) std::fill(floats->begin(), floats->end(), -1.0f);
      rank.strategy().Broadcast(std::as_writable_bytes(std::span(*floats)), holder);
    };
    hand_on(&state.parameters);
    for (auto& slot : state.slots) hand_on(&slot);
    hand_on(&state.state);
    rank.strategy().Import(rank.model(), kLast, state);
    for (int64_t step = kLast; step < kSteps; ++step) {
      EXPECT_EQ(rank.Step(step).loss, course.losses[static_cast<size_t>(step)]) << step;
    }
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Ways, PipelineRegroupTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Ways, ClippedPipelineRegroupTest, ::testing::ValuesIn(ClippedCases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer::strategy
