#include "trainer/handover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/strategy/job.h"
#include "tests/unit/strategy/promises.h"
#include "trainer/error.h"

// Jobs of which a machine, or a rank, is lost within a step: the others bring what they have into a new
// generation with a replacement, and the training ends as it would have ended.
namespace lockstep::trainer {
namespace {

using strategy::CrossDeviceOps;
using strategy::Kind;
using strategy::Shard;
using ::testing::Each;
using ::testing::IsEmpty;
using testing::Job;
using testing::JobRank;
using testing::Meeting;
using testing::RunRanks;

constexpr int64_t kSteps = 8;
const std::vector<int64_t> kWidths = {20, 400, 400, 200, 10};  // three buckets

class Killed : public std::exception {};

// Ends its rank at a call, counted from 1: before or after what it does.
class Fatal final : public Optimizer {
 public:
  Fatal(std::unique_ptr<Optimizer> inner, int call, bool after)
      : inner_(std::move(inner)), call_(call), after_(after) {}

  const std::vector<std::string>& slot_names() const override { return inner_->slot_names(); }
  int average_slot() const override { return inner_->average_slot(); }
  bool clips_by_norm() const override { return inner_->clips_by_norm(); }
  StepRates Rates(int64_t step) const override { return inner_->Rates(step); }
  double learning_rate(int64_t step) const override { return inner_->learning_rate(step); }
  void Update(int64_t step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
              std::span<const UpdateRange> ranges) override {
    Around([&] { inner_->Update(step, buffers, begin, end, ranges); });
  }
  void AddPenalties(const float* parameters, float* gradients, int64_t begin, int64_t end,
                    std::span<const UpdateRange> ranges) override {
    inner_->AddPenalties(parameters, gradients, begin, end, ranges);
  }
  double SquaredNorm(const float* parameters, float* gradients, int64_t begin, int64_t end,
                     std::span<const UpdateRange> ranges) override {
    double norm = 0;
    Around([&] { norm = inner_->SquaredNorm(parameters, gradients, begin, end, ranges); });
    return norm;
  }

 private:
  template <typename Call>
  void Around(const Call& call) {
    const bool now = ++calls_ == call_;
    if (now && !after_) throw Killed();
    call();
    if (now) throw Killed();
  }

  std::unique_ptr<Optimizer> inner_;
  int call_, calls_ = 0;
  bool after_;
};

// What the ranks of a job take from one generation into the next, and what each step lost.
struct Course {
  explicit Course(const Job& job) : held(static_cast<size_t>(job.size())), losses(kSteps) {}

  std::vector<std::vector<Held>> held;  // by rank
  std::vector<std::atomic<double>> losses;
  std::vector<float> parameters;        // at the end, rank 0's
  std::atomic<int64_t> handed_on = -1;  // the step that the latest generation began with
};

// A rank that gives up so long after it has begun a step.
struct GivesUp {
  int rank = -1;
  int64_t step = 0;
  std::chrono::microseconds after{0};
};

// From what they hold, or the beginning, to the end or a loss.
void Generation(const Job& job, bool first, Course* course, const GivesUp& who = {}) {
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    std::vector<Held>& held = course->held[static_cast<size_t>(r)];
    JobRank rank(job, meeting, r);
    rank.Setup();
    int64_t step = 0;
    if (!first) {
      const strategy::World world{.rank = r, .size = job.size()};
      const auto whole = HandOver(world, &meeting.store, std::chrono::seconds(20), rank.strategy(),
                                  rank.model(), rank.optimizer().slots(), held);
      if (!whole) throw BadData("nothing was handed on");
      rank.strategy().Import(rank.model(), whole->position.step, whole->state);
      step = whole->position.step;
      course->handed_on.store(step);
    }
    held.clear();
    std::jthread other;
    try {
      for (; step < kSteps; ++step) {
        if (r == who.rank && step == who.step) {
          if (who.after.count() == 0) rank.strategy().Abort();
          other = std::jthread([&rank, moment = std::chrono::steady_clock::now() + who.after] {
            while (std::chrono::steady_clock::now() < moment) std::this_thread::yield();
            rank.strategy().Abort();
          });
        }
        course->losses[static_cast<size_t>(step)].store(rank.Step(step).loss);
      }
      strategy::WholeState state;
      state.slots.resize(static_cast<size_t>(rank.optimizer().slots()));
      strategy::Shares shares = rank.strategy().ShareOut(rank.model(), 1);
      rank.strategy().Export(rank.model(), shares, r == 0 ? &state : nullptr);
      if (r == 0) course->parameters = state.parameters;
      rank.strategy().Finish();
    } catch (const CollectiveLost&) {
      for (strategy::Committed& committed : rank.strategy().TakeCommitted(rank.model())) {
        if (committed.finished) course->losses[static_cast<size_t>(step)].store(committed.finished->loss);
        held.push_back({.state = std::move(committed.state),
                        .parts = std::move(committed.parts),
                        .division = committed.division,
                        .position = {.step = committed.step}});
      }
    } catch (const Killed&) {
    }
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

std::vector<double> Losses(const Course& course) {
  std::vector<double> losses;
  for (const auto& loss : course.losses) losses.push_back(loss.load());
  return losses;
}

struct Case {
  std::string name;
  Job job;
};

class HandOverTest : public ::testing::TestWithParam<Case> {
 protected:
  HandOverTest() : job_(GetParam().job), undisturbed_(job_) {
    job_.timeout = std::chrono::seconds(15);
    Generation(job_, true, &undisturbed_);
  }

  void ExpectTheSameEnd(const Course& course) const {
    EXPECT_EQ(Losses(course), Losses(undisturbed_));
    EXPECT_EQ(course.parameters, undisturbed_.parameters);
  }
  // All ranks of the machine are gone, and what they had.
  void LoseMachine(int machine, Course* course) const {
    for (int r = 0; r < job_.local_size; ++r) {
      const int rank = machine * job_.local_size + r;
      course->held[static_cast<size_t>(rank)].clear();
    }
  }

  Job job_;
  Course undisturbed_;
};

// At calls of its optimizer from the first to the last, and so with any piece of any share half-way.
TEST_P(HandOverTest, ARankLostWhereverItUpdatesChangesNothing) {
  int turn = 0;
  for (int call = 1; true; call = call * 3 + 1, ++turn) {
    const int victim = turn % job_.size();
    const bool after = turn % 4 < 2;
    Job job = job_;
    job.wrap = [&](int rank, std::unique_ptr<Optimizer> optimizer) -> std::unique_ptr<Optimizer> {
      if (rank != victim) return optimizer;
      return std::make_unique<Fatal>(std::move(optimizer), call, after);
    };
    Course course(job);
    Generation(job, true, &course);
    SCOPED_TRACE("rank " + std::to_string(victim) + " at call " + std::to_string(call));
    if (std::all_of(course.held.begin(), course.held.end(), [](const auto& held) { return held.empty(); })) {
      EXPECT_GT(call, 10) << "the job is to have been disturbed";
      return ExpectTheSameEnd(course);
    }
    Generation(job_, false, &course);
    ExpectTheSameEnd(course);
  }
}

// (A sanitizer sees in a few what it sees in many, and takes long.)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMoments = 3;
#else
constexpr int kMoments = 8;
#endif

// At any moment of a step, of the communication thread's and of another rank's too; then a whole machine is
// gone with what it had.
TEST_P(HandOverTest, AMachineLostAtAnyMomentChangesNothing) {
  std::mt19937 random(11);
  int disturbed = 0;
  for (int turn = 0; turn < kMoments; ++turn) {
    const int victim = turn % job_.machines;
    const auto delay = std::chrono::microseconds(std::uniform_int_distribution(1, 4000)(random));
    Course course(job_);
    Generation(job_, true, &course, {.rank = victim * job_.local_size, .step = 1, .after = delay});
    // (On a machine that does much else they may have come to the end before.)
    if (std::any_of(course.held.begin(), course.held.end(), [](const auto& held) { return held.empty(); })) {
      continue;
    }
    ++disturbed;
    LoseMachine(victim, &course);
    Generation(job_, false, &course);
    SCOPED_TRACE("machine " + std::to_string(victim) + " after " + std::to_string(delay.count()) + " us");
    EXPECT_GE(course.handed_on.load(), 1);
    ExpectTheSameEnd(course);
  }
  EXPECT_GE(disturbed, (kMoments + 3) / 4);
}

TEST(HandOverOfSharesTest, TwoMachinesLostLeaveNoWholeState) {
  const Job job{.machines = 3,
                .kind = Kind::kMultiWorkerMirrored,
                .shard = Shard::kOptimizer,
                .copy_shards = true,
                .widths = kWidths};
  Course course(job);
  Generation(job, true, &course, {.rank = 1, .step = 2});
  for (const size_t lost : {1, 2}) course.held[lost].clear();
  ASSERT_FALSE(course.held[0].empty());
  Meeting meeting;
  const auto thrown = RunRanks(job.size(), [&](int r) {
    JobRank rank(job, meeting, r);
    rank.Setup();
    EXPECT_FALSE(HandOver({.rank = r, .size = job.size()}, &meeting.store, std::chrono::seconds(20),
                          rank.strategy(), rank.model(), rank.optimizer().slots(),
                          course.held[static_cast<size_t>(r)]));
    rank.strategy().Finish();
  });
  EXPECT_THAT(thrown, Each(IsEmpty()));
}

// As an elastic job does, which goes on with whoever is left and takes in others again later.
TEST(HandOverOfSharesTest, TheNextGenerationMayDivideOtherwise) {
  const auto job = [](int machines) {
    return Job{.machines = machines,
               .kind = machines == 1 ? Kind::kMirrored : Kind::kMultiWorkerMirrored,
               .shard = Shard::kGradients,
               .copy_shards = true,
               .widths = kWidths};
  };
  Course wanted(job(3));
  Generation(job(3), true, &wanted);
  Course course(job(3));
  Generation(job(3), true, &course, {.rank = 0, .step = 1});
  for (const int machines : {2, 1, 3}) {
    course.held.erase(course.held.begin());  // the first machine's
    course.held.resize(static_cast<size_t>(machines));
    const int64_t before = course.handed_on.load();
    Generation(job(machines), false, &course, {.rank = 0, .step = machines == 3 ? kSteps : 7 - machines});
    EXPECT_GT(course.handed_on.load(), before);
    if (machines == 1) course.held.insert(course.held.begin(), std::vector<Held>());
  }
  // (The order of additions depends on how many there are.)
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(course.losses[step].load(), wanted.losses[step].load(), 1e-5 * wanted.losses[step].load());
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Shard shard : {Shard::kOptimizer, Shard::kGradients}) {
    const std::string name = shard == Shard::kOptimizer ? "Optimizer" : "Gradients";
    for (const auto& [machines, ranks] : {std::pair{2, 1}, {3, 1}, {2, 2}, {3, 2}}) {
      Job job{.machines = machines,
              .local_size = ranks,
              .kind = Kind::kMultiWorkerMirrored,
              .shard = shard,
              .copy_shards = true,
              .widths = kWidths};
      const std::string size = std::to_string(machines) + "x" + std::to_string(ranks);
      machines == 2 ? cases.push_back({name + size, job})
                    : cases.push_back({name + size + "Recipe", testing::WithTheWholeRecipe(job)});
    }
  }
  cases.push_back(
      {"Whole2x2", {.machines = 2, .local_size = 2, .kind = Kind::kMultiWorkerMirrored, .widths = kWidths}});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ways, HandOverTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::trainer
