#include "common/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace lockstep {
namespace {

int Open() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFdTest, ClosesWhatItOwns) {
  int raw;
  {
    UniqueFd fd(Open());
    raw = fd.get();
    EXPECT_TRUE(IsOpen(raw));
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(UniqueFdTest, MovingOverAnotherClosesTheOther) {
  UniqueFd a(Open()), b(Open());
  const int first = a.get(), second = b.get();
  a = std::move(b);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(a.get(), second);
  EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move)
}

TEST(UniqueFdTest, SurvivesBeingMovedOntoItself) {
  UniqueFd fd(Open());
  UniqueFd& same = fd;
  fd = std::move(same);
  EXPECT_TRUE(IsOpen(fd.get()));
}

}  // namespace
}  // namespace lockstep
