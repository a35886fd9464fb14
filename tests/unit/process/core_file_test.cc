#include "launcher/process/core_file.h"

#include <gtest/gtest.h>

namespace lockstep::process {
namespace {

TEST(CoreFileTest, IsWhereAPlainPatternSays) {
  EXPECT_EQ(CoreFilePath("core", false, 42, "/src"), "/src/core");
  EXPECT_EQ(CoreFilePath("core", true, 42, "/src"), "/src/core.42");
  EXPECT_EQ(CoreFilePath("/cores/c-%p%%", true, 42, "/src"), "/cores/c-42%");
  EXPECT_EQ(CoreFilePath("dumps/%p", false, 42, "/src"), "/src/dumps/42");
}

TEST(CoreFileTest, IsUnknownWhereAProgramOrMoreThanThePidDecides) {
  for (const char* pattern : {"", "|/usr/lib/systemd-coredump %P", "core.%e.%p", "core.%t", "core%"}) {
    EXPECT_EQ(CoreFilePath(pattern, true, 42, "/src"), "") << pattern;
  }
}

}  // namespace
}  // namespace lockstep::process
