#include "trainer/trace/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lockstep::trainer::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Span Work(int64_t step, int64_t bucket = -1) { return {.name = "work", .step = step, .bucket = bucket}; }

std::vector<int64_t> StepsOf(const Recorder& recorder) {
  std::vector<int64_t> steps;
  for (const Span& span : recorder.Last()) steps.push_back(span.step);
  return steps;
}

TEST(RecorderTest, KeepsTheLastSteps) {
  Recorder recorder({.steps = 2});
  EXPECT_THAT(recorder.Last(), IsEmpty());
  for (int64_t step = 1; step <= 5; ++step) {
    recorder.Add(Work(step));
    recorder.Add(Work(step));
  }
  EXPECT_THAT(StepsOf(recorder), ElementsAre(4, 4, 5, 5));
}

TEST(RecorderTest, ASpanBelongsToTheStepAtHandUnlessItSaysOtherwise) {
  Recorder recorder({.steps = 9});
  recorder.Add(Work(0));  // before the first step
  recorder.BeginStep(7);
  recorder.Add(Work(0));
  recorder.Add(Work(6));
  EXPECT_THAT(StepsOf(recorder), ElementsAre(7, 6));
}

TEST(RecorderTest, AStepThatIsNoLongerWholeIsLeftOut) {
  Recorder recorder({.steps = 10, .most_spans = 5});
  for (int64_t step = 1; step <= 3; ++step) {
    recorder.Add(Work(step));
    recorder.Add(Work(step));
  }
  // Of the first step one had to go.
  EXPECT_THAT(StepsOf(recorder), ElementsAre(2, 2, 3, 3));
}

TEST(RecorderTest, OfAStepThatIsTooLargeItsEndStays) {
  Recorder recorder({.steps = 10, .most_spans = 3});
  for (int64_t bucket = 0; bucket < 7; ++bucket) recorder.Add(Work(1, bucket));
  std::vector<int64_t> buckets;
  for (const Span& span : recorder.Last()) buckets.push_back(span.bucket);
  EXPECT_THAT(buckets, ElementsAre(4, 5, 6));
}

TEST(RecorderTest, AScopeIsASpanOfItsBlock) {
  Recorder recorder({});
  recorder.BeginStep(1);
  const auto before = Clock::now();
  {
    const Scope outer(&recorder, Track::kCommunication, "all-reduce", {.bucket = 3, .bytes = 64});
    const Scope inner(&recorder, Track::kCommunication, "wait");
  }
  const auto after = Clock::now();
  const std::vector<Span> spans = recorder.Last();
  ASSERT_EQ(spans.size(), 2u);
  const Span &inner = spans[0], &outer = spans[1];
  EXPECT_EQ(std::string(outer.name), "all-reduce");
  EXPECT_EQ(outer.track, Track::kCommunication);
  EXPECT_EQ(outer.bucket, 3);
  EXPECT_EQ(outer.bytes, 64);
  EXPECT_LE(before, outer.begin);
  EXPECT_LE(outer.begin, inner.begin);
  EXPECT_LE(inner.begin, inner.end);
  EXPECT_LE(inner.end, outer.end);
  EXPECT_LE(outer.end, after);
}

TEST(RecorderTest, WithoutARecorderAScopeDoesNothing) {
  const Scope scope(nullptr, Track::kCompute, "forward");
}

TEST(RecorderTest, SeveralThreadsMayAdd) {
  Recorder recorder({.steps = 1});
  recorder.BeginStep(1);
  const auto work = [&] {
    for (int i = 0; i < 1000; ++i) const Scope scope(&recorder, Track::kCompute, "update");
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(recorder.Last().size(), 2000u);
}

}  // namespace
}  // namespace lockstep::trainer::trace
