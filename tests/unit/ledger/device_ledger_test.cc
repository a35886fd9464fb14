#include "launcher/ledger/device_ledger.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <functional>

#include "launcher/ledger/claim_file.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::ledger {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDevice[] = "GPU-aaaaaaaa-1111";

Use Half(const std::string& device = kDevice) {
  return {
      .device = device, .total_bytes = 1000, .policy = "Fraction", .bytes = 500, .share = 0, .processes = 1};
}

Use Most() {
  Use use = Half();
  use.bytes = 600;
  return use;
}

Result<DeviceLedger> Take(const TemporaryFolder& folder, const std::vector<Use>& uses, bool force = false,
                          std::vector<std::string>* overruled = nullptr) {
  std::vector<std::string> said;
  auto ledger = DeviceLedger::Acquire(
      {.folder = folder.path(), .job = "mnist", .namespace_name = "default", .force = force}, uses, said);
  if (overruled != nullptr) *overruled = said;
  return ledger;
}

size_t ClaimFiles(const TemporaryFolder& folder) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    count += entry.path().extension() == ".claim" ? 1 : 0;
  }
  return count;
}

TEST(DeviceLedgerTest, LetsTwoHalvesInAndNoMore) {
  const TemporaryFolder folder;
  auto first = Take(folder, {Half()});
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto refused = Take(folder, {Most()});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("job default/mnist of "));
  EXPECT_THAT(refused.status().message(), HasSubstr("(pid " + std::to_string(::getpid()) + ","));
  EXPECT_EQ(ClaimFiles(folder), 1u);  // the refused one left nothing
  const auto second = Take(folder, {Half()});
  EXPECT_TRUE(second.ok());
  EXPECT_FALSE(Take(folder, {Half()}).ok());
}

TEST(DeviceLedgerTest, GivesBackWhatItHeld) {
  const TemporaryFolder folder;
  {
    const auto first = Take(folder, {Most()});
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(ReadClaims(folder.path(), kDevice)->size(), 1u);
  }
  EXPECT_THAT(*ReadClaims(folder.path(), kDevice), IsEmpty());
  EXPECT_EQ(ClaimFiles(folder), 0u);
  EXPECT_TRUE(Take(folder, {Most()}).ok());
}

TEST(DeviceLedgerTest, MovesWithItsClaims) {
  const TemporaryFolder folder;
  auto first = Take(folder, {Most()});
  auto other = Take(folder, {Half("GPU-other")});
  ASSERT_TRUE(first.ok() && other.ok());
  *other = std::move(*first);
  EXPECT_EQ(ReadClaims(folder.path(), kDevice)->size(), 1u);
  EXPECT_THAT(*ReadClaims(folder.path(), "GPU-other"), IsEmpty());
}

TEST(DeviceLedgerTest, ClaimsAllOrNothing) {
  const TemporaryFolder folder;
  const auto first = Take(folder, {Most()});
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(Take(folder, {Half("GPU-other"), Half()}).ok());
  EXPECT_THAT(*ReadClaims(folder.path(), "GPU-other"), IsEmpty());
}

TEST(DeviceLedgerTest, CanBeOverruledAndSaysBy) {
  const TemporaryFolder folder;
  const auto first = Take(folder, {Most()});
  std::vector<std::string> overruled;
  const auto forced = Take(folder, {Most()}, /*force=*/true, &overruled);
  ASSERT_TRUE(forced.ok());
  EXPECT_THAT(overruled, ElementsAre(HasSubstr("is promised to others")));
  EXPECT_EQ(ReadClaims(folder.path(), kDevice)->size(), 2u);
}

// What a crash leaves: the file is there, and nobody has it locked.
TEST(DeviceLedgerTest, TakesNoNoticeOfTheDead) {
  const TemporaryFolder folder;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto held = Take(folder, {Most()});
    [[maybe_unused]] const ssize_t written = ::write(pipe[1], held.ok() ? "y" : "n", 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 0;
  ASSERT_EQ(::read(pipe[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_FALSE(Take(folder, {Most()}).ok());
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(ClaimFiles(folder), 1u);
  EXPECT_THAT(*ReadClaims(folder.path(), kDevice), IsEmpty());
  const auto next = Take(folder, {Most()});
  EXPECT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(ClaimFiles(folder), 1u);  // its own
}

// Two users in a folder of root's with the sticky bit, as /run/lock is.
TEST(DeviceLedgerTest, IsSharedByUsersWhoDoNotTrustOneAnother) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  constexpr uid_t kNobody = 65534;
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);
  const auto as_nobody = [&](const std::function<bool()>& holds) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(::setuid(kNobody) == 0 && holds() ? 0 : 1);
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  auto mine = Take(folder, {Most()});
  ASSERT_TRUE(mine.ok());
  EXPECT_TRUE(as_nobody([&] {
    const auto refused = Take(folder, {Most()});
    return refused.status().code() == StatusCode::kFailedPrecondition &&
           refused.status().message().find(" of root (pid") != std::string::npos;
  }));
  *mine = std::move(*Take(folder, {}));  // given back; the lock file stays root's
  EXPECT_TRUE(as_nobody([&] {
    const auto taken = Take(folder, {Most()});
    return taken.ok() && ClaimFiles(folder) == 1;
  }));
  // A file that its owner keeps from others holds nobody up.
  const std::string secret = folder.Write("lockstep-device-" + std::string(kDevice) + ".99.claim", "secret");
  ASSERT_EQ(::chmod(secret.c_str(), 0600), 0);
  const UniqueFd held(::open(secret.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  EXPECT_TRUE(as_nobody([&] { return Take(folder, {Most()}).ok(); }));
}

TEST(DeviceLedgerTest, NamesAFileThatIsNoClaim) {
  const TemporaryFolder folder;
  const std::string file =
      folder.Write("lockstep-device-" + std::string(kDevice) + ".0123.claim", "{\"job\": \"\x1b[2J");
  const UniqueFd held(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);  // whoever wrote it is alive
  const auto refused = Take(folder, {Half()});
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr(file));
  EXPECT_THAT(refused.status().message(), HasSubstr("is no JSON object"));
  std::vector<std::string> overruled;
  EXPECT_TRUE(Take(folder, {Half()}, /*force=*/true, &overruled).ok());
  EXPECT_THAT(overruled, ElementsAre(HasSubstr(file)));
}

TEST(DeviceLedgerTest, FollowsNoLinkAndOpensNoPipe) {
  const std::string stem = "lockstep-device-" + std::string(kDevice);
  const TemporaryFolder linked;
  const std::string victim = linked.Write("victim", "precious");
  fs::create_symlink(victim, linked.File(stem + ".lock"));
  EXPECT_THAT(Take(linked, {Half()}).status().message(), HasSubstr(stem + ".lock"));
  EXPECT_EQ(lockstep::testing::ReadText(victim), "precious");

  const TemporaryFolder piped;
  ASSERT_EQ(::mkfifo(piped.File(stem + ".77.claim").c_str(), 0600), 0);
  EXPECT_THAT(Take(piped, {Half()}).status().message(), HasSubstr("is no plain file"));
}

TEST(DeviceLedgerTest, NamesDevicesWithSlashes) {
  const TemporaryFolder folder;
  const auto held = Take(folder, {Half("MIG-GPU-aaaa/1/0"), Half("MIG-GPU-aaaa_1_0")});
  ASSERT_TRUE(held.ok()) << held.status().message();
  const auto claims = ReadClaims(folder.path(), "MIG-GPU-aaaa/1/0");
  ASSERT_EQ(claims->size(), 1u);
  EXPECT_EQ(claims->front().use.bytes, 500);
}

TEST(FolderForTest, TakesWhatItIsGivenOnlyWhereNobodyCanReplaceFiles) {
  const TemporaryFolder folder;
  const std::string mine = folder.File("mine");
  EXPECT_EQ(*DeviceLedger::FolderFor(mine), mine);
  struct stat info {};
  ASSERT_EQ(::stat(mine.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::chmod(mine.c_str(), 0777), 0);
  EXPECT_THAT(DeviceLedger::FolderFor(mine).status().message(), HasSubstr("has no sticky bit"));
  ASSERT_EQ(::chmod(mine.c_str(), 01777), 0);
  EXPECT_TRUE(DeviceLedger::FolderFor(mine).ok());
  fs::create_symlink(mine, folder.File("link"));
  EXPECT_THAT(DeviceLedger::FolderFor(folder.File("link")).status().message(), HasSubstr("is no folder"));
}

TEST(FolderForTest, IsOneThatAllUsersShareByDefault) {
  const auto folder = DeviceLedger::FolderFor("");
  if (!folder.ok()) GTEST_SKIP() << folder.status().message();
  struct stat info {};
  ASSERT_EQ(::stat(folder->c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u);
  EXPECT_NE(info.st_mode & S_ISVTX, 0u);
}

}  // namespace
}  // namespace lockstep::ledger
