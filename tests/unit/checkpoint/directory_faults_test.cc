#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/snapshots.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/directory_names.h"
#include "trainer/error.h"

// What a disk and a crash can do to a folder of checkpoints.
namespace lockstep::trainer::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DirectoryFaultsTest : public ::testing::Test {
 protected:
  Directory Open(int64_t generation = 0, int keep = 3) const {
    return Directory({.path = path_, .run = "run", .generation = generation, .keep = keep});
  }
  std::optional<Directory::Loaded> Newest() {
    warnings_.clear();
    return Open().LoadNewest(SomeSignature(), &warnings_);
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
  std::vector<std::string> warnings_;
};

TEST_F(DirectoryFaultsTest, FallsBackFromACheckpointCutAnywhere) {
  Directory directory = Open();
  ASSERT_TRUE(directory.Save(SomeSnapshot(10)).ok());
  const std::string newest = *directory.Save(SomeSnapshot(20));
  const std::string whole = testing::ReadText(newest);
  for (size_t length = 0; length < whole.size(); length += 7) {
    WriteBytes(newest, whole.substr(0, length));
    const auto loaded = Newest();
    ASSERT_TRUE(loaded) << length;
    ASSERT_EQ(loaded->snapshot.step, 10) << length;
    ASSERT_THAT(warnings_, ElementsAre(AllOf(HasSubstr(newest), HasSubstr("cut short")))) << length;
  }
}

// Every state of the disk that a crash of the writer, at any of its steps, can leave.
TEST_F(DirectoryFaultsTest, FindsTheOneBeforeAfterACrashAtAnyPointOfWriting) {
  Directory directory = Open();
  ASSERT_TRUE(directory.Save(SomeSnapshot(10)).ok());
  const std::string newest = *directory.Save(SomeSnapshot(20));
  const std::string whole = testing::ReadText(newest);
  std::filesystem::remove(newest);
  const std::string temporary = path_ + "/" + TemporaryName(CheckpointName({.term = 1, .step = 20}));
  for (size_t length = 0; length <= whole.size(); length += 5) {
    WriteBytes(temporary, whole.substr(0, length));
    const auto loaded = Newest();
    ASSERT_TRUE(loaded);
    ASSERT_EQ(loaded->snapshot.step, 10);
    ASSERT_THAT(warnings_, IsEmpty());
  }
  WriteBytes(temporary, whole);
  std::filesystem::rename(temporary, newest);
  EXPECT_EQ(Newest()->snapshot.step, 20);
}

TEST_F(DirectoryFaultsTest, FallsBackFromAFlippedBitAndSaysSo) {
  Directory directory = Open();
  ASSERT_TRUE(directory.Save(SomeSnapshot(10)).ok());
  const std::string newest = *directory.Save(SomeSnapshot(20));
  const std::string whole = testing::ReadText(newest);
  for (size_t byte = 0; byte < whole.size(); byte += 3) {
    std::string flipped = whole;
    flipped[byte] = static_cast<char>(flipped[byte] ^ 0x10);
    WriteBytes(newest, flipped);
    const auto loaded = Newest();
    ASSERT_TRUE(loaded) << byte;
    ASSERT_EQ(loaded->snapshot.step, 10) << byte;
    ASSERT_THAT(warnings_, ElementsAre(HasSubstr(newest + ": not used: "))) << byte;
  }
  EXPECT_THROW(Directory::Load(newest, SomeSignature()), BadData);
}

TEST_F(DirectoryFaultsTest, StartsAfreshWithWarningsWhenAllAreDamaged) {
  Directory directory = Open();
  for (const int64_t step : {10, 20}) WriteBytes(*directory.Save(SomeSnapshot(step)), "gone");
  EXPECT_FALSE(Newest());
  EXPECT_EQ(warnings_.size(), 2u);
}

// Runs `body` in a process of its own; true when it returned true.
template <typename Body>
bool InChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(DirectoryFaultsTest, SaysThatAFolderCannotBeWritten) {
  const std::string path = folder_.File("read-only");
  std::filesystem::create_directory(path);
  ASSERT_EQ(::chmod(path.c_str(), 0555), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  EXPECT_TRUE(InChild([&] {
    constexpr uid_t kNobody = 65534;  // root may write everywhere
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) return false;
    Directory directory({.path = path, .run = "run"});
    return directory.Claim().code() == StatusCode::kPermissionDenied &&
           directory.Save(SomeSnapshot(1)).status().code() == StatusCode::kPermissionDenied;
  }));
  EXPECT_THAT(NamesIn(path), IsEmpty());
}

TEST_F(DirectoryFaultsTest, SaysThatAFolderIsNone) {
  folder_.Write("file", "x");
  Directory directory({.path = folder_.File("file"), .run = "run"});
  EXPECT_EQ(directory.Claim().code(), StatusCode::kInvalidArgument);
  std::vector<std::string> warnings;
  EXPECT_THROW(directory.LoadNewest(SomeSignature(), &warnings), BadData);
  Directory forbidden({.path = "/proc/lockstep/checkpoints", .run = "run"});
  EXPECT_FALSE(forbidden.Claim().ok());
  EXPECT_FALSE(forbidden.Save(SomeSnapshot(1)).ok());
}

// The same where files may not grow beyond `bytes`.
template <typename Body>
bool WithLimitedFiles(rlim_t bytes, Body body) {
  return InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 && body();
  });
}

TEST_F(DirectoryFaultsTest, KeepsTheOldOneAndLeavesNothingWhenWritingFailsAnywhere) {
  Directory directory = Open(0, 1);
  const std::string first = *directory.Save(SomeSnapshot(10));
  const auto size = static_cast<rlim_t>(std::filesystem::file_size(first));
  const std::vector<std::string> before = NamesIn(path_);
  for (rlim_t limit = 0; limit < size; limit += 50) {
    EXPECT_TRUE(WithLimitedFiles(limit, [&] {
      const Result<std::string> saved = directory.Save(SomeSnapshot(20));
      return !saved.ok() && saved.status().code() != StatusCode::kAborted;
    })) << limit;
    ASSERT_EQ(NamesIn(path_), before) << limit;
  }
  EXPECT_EQ(Newest()->snapshot.step, 10);
  EXPECT_TRUE(directory.Save(SomeSnapshot(20)).ok());
}

class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    std::filesystem::create_directory(path);
    mounted_ = ::mount("lockstep-test", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=128k") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST_F(DirectoryFaultsTest, GoesOnAfterAFullDiskAndSavesAgainOnceThereIsRoom) {
  const std::string path = folder_.File("small");
  const SmallDisk disk(path);
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  Directory directory({.path = path, .run = "run", .keep = 3});
  ASSERT_TRUE(directory.Save(SomeSnapshot(10)).ok());
  const std::vector<std::string> before = NamesIn(path);
  const std::string ballast = path + "/ballast";
  WriteBytes(ballast, std::string(256 * 1024, 'x'));

  const Result<std::string> saved = directory.Save(SomeSnapshot(20));
  EXPECT_EQ(saved.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(saved.status().message(), HasSubstr("No space left"));
  // Neither may a new generation be kept from resuming.
  Directory next({.path = path, .run = "run", .generation = 1, .keep = 3});
  EXPECT_EQ(next.Claim().code(), StatusCode::kResourceExhausted);
  std::vector<std::string> warnings;
  EXPECT_EQ(next.LoadNewest(SomeSignature(), &warnings)->snapshot.step, 10);

  std::filesystem::remove(ballast);
  EXPECT_EQ(NamesIn(path), before);
  EXPECT_TRUE(next.Save(SomeSnapshot(30)).ok());
  EXPECT_EQ(next.LoadNewest(SomeSignature(), &warnings)->snapshot.step, 30);
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
