#include "trainer/collectives/local/shared_segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "tests/unit/collectives/ranks.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using ::lockstep::testing::In;
using ::lockstep::testing::InMemoryStore;
using ::lockstep::testing::Soon;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string Message(const std::function<void()>& call) {
  try {
    call();
  } catch (const RendezvousFailed& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SharedSegmentTest, IsZeroAndTheSameMemoryForWhoeverAttaches) {
  InMemoryStore store;
  const SharedSegment created = SharedSegment::Create("test", 100'000);
  for (const std::byte b : created.View<std::byte>(0, created.size())) ASSERT_EQ(b, std::byte{0});
  created.Publish(store, "key", Soon());
  const SharedSegment attached = SharedSegment::Attach(store, "key", 100'000, Soon());
  ASSERT_NE(attached.data(), created.data());
  attached.View<int>(4096, 1)[0] = 42;
  EXPECT_EQ(created.View<int>(4096, 1)[0], 42);
}

TEST(SharedSegmentTest, AnotherProcessSeesWhatIsWritten) {
  InMemoryStore store;
  const SharedSegment created = SharedSegment::Create("test", 4096);
  created.Publish(store, "key", Soon());
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedSegment attached = SharedSegment::Attach(store, "key", 4096, Soon());
    attached.View<std::atomic<int>>(0, 1)[0].store(7);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((created.View<std::atomic<int>>(0, 1)[0].load()), 7);
}

TEST(SharedSegmentTest, LivesAsLongAsAnyHandle) {
  SharedSegment copy;
  {
    const SharedSegment created = SharedSegment::Create("test", 4096);
    created.View<int>(0, 1)[0] = 5;
    copy = created;
  }
  EXPECT_EQ(copy.View<int>(0, 1)[0], 5);
}

TEST(SharedSegmentTest, ASizeThatDiffersIsRefused) {
  InMemoryStore store;
  const SharedSegment created = SharedSegment::Create("test", 4096);
  created.Publish(store, "key", Soon());
  EXPECT_THAT(Message([&] { SharedSegment::Attach(store, "key", 8192, Soon()); }),
              HasSubstr("4096 bytes where this rank expects 8192"));
}

TEST(SharedSegmentTest, WaitsForTheKeyUntilTheDeadlineAndNamesIt) {
  InMemoryStore store;
  EXPECT_THAT(Message([&] { SharedSegment::Attach(store, "the-key", 4096, In(milliseconds(20))); }),
              HasSubstr("the-key"));
}

TEST(SharedSegmentTest, AnotherFileUnderTheSameNumberIsNotTakenForIt) {
  InMemoryStore store;
  std::string where;
  {
    const SharedSegment created = SharedSegment::Create("test", 4096);
    created.Publish(store, "key", Soon());
    where = *store.Get("key", Soon());
  }
  // Its number is free now: a file of the same size takes it.
  const SharedSegment other = SharedSegment::Create("other", 4096);
  EXPECT_THAT(Message([&] { SharedSegment::Attach(store, "key", 4096, Soon()); }), HasSubstr("/proc/"));
  ASSERT_TRUE(store.Set("key", "what is this", Soon()).ok());
  EXPECT_THAT(Message([&] { SharedSegment::Attach(store, "key", 4096, Soon()); }), HasSubstr("what is this"));
  ASSERT_TRUE(store.Set("key", "999999999 3 1 4096", Soon()).ok());
  EXPECT_THAT(Message([&] { SharedSegment::Attach(store, "key", 4096, Soon()); }),
              HasSubstr("its process is gone"));
}

TEST(SharedSegmentTest, DiscardGivesBackWholePagesAndLeavesTheRest) {
  constexpr size_t kPage = 4096;
  const SharedSegment segment = SharedSegment::Create("test", 4 * kPage, false);
  const auto bytes = segment.View<std::byte>(0, 4 * kPage);
  std::fill(bytes.begin(), bytes.end(), std::byte{7});
  // From the middle of the first page to the middle of the last: two whole ones.
  segment.Discard(bytes.subspan(kPage / 2, 3 * kPage));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool gone = i >= kPage && i < 3 * kPage;
    ASSERT_EQ(bytes[i], gone ? std::byte{0} : std::byte{7}) << i;
  }
  segment.Discard(bytes.subspan(100, 200));
  EXPECT_EQ(bytes[150], std::byte{7});
}

TEST(SharedSegmentTest, MoreThanThereIsIsOutOfMemory) {
  EXPECT_THROW(SharedSegment::Create("huge", size_t{1} << 62, false), OutOfMemory);
}

}  // namespace
}  // namespace lockstep::trainer::collectives
