#include "trainer/collectives/local/stream_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace lockstep::trainer::collectives {
namespace {

TEST(StreamCopyTest, CopiesJustThatWhereverItBegins) {
  std::vector<float> from(200);
  std::iota(from.begin(), from.end(), 1.0f);
  for (size_t begin = 0; begin < 20; ++begin) {
    for (const size_t count : {0, 1, 3, 4, 15, 16, 17, 64, 100}) {
      std::vector<float> to(200, -1), wanted(200, -1);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), count,
                  wanted.begin() + static_cast<std::ptrdiff_t>(begin));
      StreamCopy(to.data() + begin, from.data() + begin, count);
      EXPECT_EQ(to, wanted) << count << " from " << begin;
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer::collectives
