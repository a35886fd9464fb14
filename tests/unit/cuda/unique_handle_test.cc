#include "trainer/backend/cuda/unique_handle.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::trainer::cuda {
namespace {

std::vector<int>& Destroyed() {
  static std::vector<int> destroyed;
  return destroyed;
}
struct Traits {
  using Handle = int;
  static void Destroy(int handle) noexcept { Destroyed().push_back(handle); }
};
using Owner = UniqueHandle<Traits>;

class UniqueHandleTest : public testing::Test {
 protected:
  UniqueHandleTest() { Destroyed().clear(); }
};

TEST_F(UniqueHandleTest, DestroysOnceWhatItOwns) {
  {
    Owner one(1);
    Owner moved(std::move(one));
    EXPECT_FALSE(one);
    EXPECT_EQ(moved.get(), 1);
    EXPECT_TRUE(Destroyed().empty());
  }
  EXPECT_EQ(Destroyed(), std::vector<int>{1});
}

TEST_F(UniqueHandleTest, OverwrittenItDestroysTheOldOne) {
  Owner one(1);
  one = Owner(2);
  EXPECT_EQ(Destroyed(), std::vector<int>{1});
  *one.Receive() = 3;
  EXPECT_EQ(Destroyed(), (std::vector<int>{1, 2}));
  EXPECT_EQ(one.get(), 3);
}

TEST_F(UniqueHandleTest, MovedOntoItselfItKeepsWhatItOwns) {
  Owner one(1);
  Owner& same = one;
  one = std::move(same);
  EXPECT_EQ(one.get(), 1);
  EXPECT_TRUE(Destroyed().empty());
}

TEST_F(UniqueHandleTest, ReleasedOrEmptyItDestroysNothing) {
  {
    Owner empty;
    Owner one(1);
    EXPECT_EQ(one.Release(), 1);
  }
  EXPECT_TRUE(Destroyed().empty());
}

}  // namespace
}  // namespace lockstep::trainer::cuda
