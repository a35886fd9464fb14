#include "launcher/agent/inject.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lockstep::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::ReadText;

void Write(const fs::path& file, const std::string& text, mode_t mode = 0644) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
  ::chmod(file.c_str(), mode);
}

TEST(CopyLauncherTest, CopiesAllOfItAndDoesSoAgain) {
  const testing::TemporaryFolder folder;
  const fs::path from = folder.path() / "from";
  const fs::path to = folder.path() / "to";
  fs::create_directory(to);
  Write(from / "bin/lockstep", "program", 0755);
  Write(from / "lib/libc.so.6", "library");
  for (const char* text : {"program", "newer"}) {
    Write(from / "bin/lockstep", text, 0755);
    const Status status = CopyLauncher(from, to);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(ReadText(to / "bin/lockstep"), text);
    EXPECT_EQ(ReadText(to / "lib/libc.so.6"), "library");
    EXPECT_EQ(fs::status(to / "bin/lockstep").permissions(), fs::perms(0755));
  }
}

TEST(CopyLauncherTest, SaysWhatIsMissing) {
  const testing::TemporaryFolder folder;
  const fs::path from = folder.path() / "from";
  EXPECT_THAT(CopyLauncher(from, folder.path()).message(), HasSubstr("has no launcher"));
  Write(from / "bin/lockstep", "program", 0755);
  const fs::path nowhere = folder.path() / "not/there";
  const Status status = CopyLauncher(from, nowhere);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(nowhere.string()));
  EXPECT_THAT(status.message(), HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace lockstep::agent
