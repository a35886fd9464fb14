#include "trainer/checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/checkpoint/snapshots.h"
#include "trainer/checkpoint/directory_names.h"
#include "trainer/error.h"

namespace lockstep::trainer::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class DirectoryTest : public ::testing::Test {
 protected:
  Directory Open(const std::string& run, int64_t generation, int keep = 3) const {
    return Directory({.path = path_, .run = run, .generation = generation, .keep = keep});
  }

  std::optional<Directory::Loaded> Newest() {
    warnings_.clear();
    return Open("reader", 0).LoadNewest(SomeSignature(), &warnings_);
  }

  std::vector<std::string> Checkpoints() const {
    std::vector<std::string> names;
    for (const std::string& name : NamesIn(path_)) {
      if (ParseCheckpointName(name)) names.push_back(name);
    }
    return names;
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.File("job/checkpoints");
  std::vector<std::string> warnings_;
};

void ExpectSaved(Directory& directory, int64_t step) {
  const Result<std::string> saved = directory.Save(SomeSnapshot(step));
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
}

TEST_F(DirectoryTest, HasNothingToLoadAtFirst) {
  EXPECT_FALSE(Newest());
  Directory directory = Open("run", 0);
  ASSERT_TRUE(directory.Claim().ok());
  EXPECT_FALSE(Newest());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DirectoryTest, LoadsTheNewestWithAllItHolds) {
  Directory directory = Open("run", 0);
  ExpectSaved(directory, 90);
  ExpectSaved(directory, 100);
  const Result<std::string> saved = directory.Save(SomeSnapshot(1000));
  ASSERT_TRUE(saved.ok());
  const auto newest = Newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->path, *saved);
  ExpectSame(newest->snapshot, SomeSnapshot(1000));
  ExpectSame(Directory::Load(*saved, SomeSignature()), SomeSnapshot(1000));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(DirectoryTest, KeepsTheNewestOnly) {
  Directory directory = Open("run", 0, 2);
  for (const int64_t step : {10, 20, 30, 40}) ExpectSaved(directory, step);
  EXPECT_THAT(NamesIn(path_), ElementsAre("step-000000030-term-000001.ckpt",
                                          "step-000000040-term-000001.ckpt", "term-000001"));
}

TEST_F(DirectoryTest, KeepsOneAtLeastAndNothingElseIsTouched) {
  Directory directory = Open("run", 0, 0);
  ASSERT_TRUE(directory.Claim().ok());
  for (const char* name :
       {"notes.txt", "step-1-term-1.ckpt", "step-000000001-term-000001.ckpt.bak", "term-x"}) {
    WriteBytes(path_ + "/" + name, "x");
  }
  ExpectSaved(directory, 10);
  ExpectSaved(directory, 20);
  EXPECT_THAT(NamesIn(path_),
              ElementsAre("notes.txt", "step-000000001-term-000001.ckpt.bak",
                          "step-000000020-term-000001.ckpt", "step-1-term-1.ckpt", "term-000001", "term-x"));
}

TEST_F(DirectoryTest, OverwritesItsOwnCheckpointOfTheSameStep) {
  Directory directory = Open("run", 0);
  ExpectSaved(directory, 10);
  Snapshot other = SomeSnapshot(10);
  other.metadata = "second";
  ASSERT_TRUE(directory.Save(other).ok());
  EXPECT_EQ(Newest()->snapshot.metadata, "second");
}

TEST_F(DirectoryTest, RefusesAnOldGenerationToWrite) {
  Directory old = Open("run", 1, 1);
  ExpectSaved(old, 10);
  Directory next = Open("run", 2, 3);
  ASSERT_TRUE(next.Claim().ok());
  const Result<std::string> refused = old.Save(SomeSnapshot(20));
  EXPECT_EQ(refused.status().code(), StatusCode::kAborted);
  ExpectSaved(next, 15);
  EXPECT_EQ(old.Save(SomeSnapshot(30)).status().code(), StatusCode::kAborted);
  EXPECT_THAT(Checkpoints(),
              ElementsAre("step-000000010-term-000001.ckpt", "step-000000015-term-000002.ckpt"));
}

TEST_F(DirectoryTest, RefusesAnOldGenerationToClaim) {
  Directory next = Open("run", 2), old = Open("run", 1);
  ASSERT_TRUE(next.Claim().ok());
  const Status refused = old.Claim();
  EXPECT_EQ(refused.code(), StatusCode::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("generation 2 writes here now; this is generation 1"));
  EXPECT_EQ(old.Save(SomeSnapshot(5)).status().code(), StatusCode::kAborted);
  ExpectSaved(next, 5);
}

TEST_F(DirectoryTest, LetsAnotherRunTakeOverAtGenerationZero) {
  Directory before = Open("monday", 4);
  ExpectSaved(before, 10);
  Directory after = Open("tuesday", 0);
  ASSERT_TRUE(after.Claim().ok());
  EXPECT_EQ(before.Save(SomeSnapshot(20)).status().code(), StatusCode::kAborted);
  ExpectSaved(after, 11);
  EXPECT_EQ(Newest()->snapshot.step, 11);
}

TEST_F(DirectoryTest, ARunThatWasTakenOverFromNeverComesBack) {
  Directory monday = Open("monday", 4);
  ExpectSaved(monday, 10);
  ASSERT_TRUE(Open("tuesday", 0).Claim().ok());
  const Status refused = Open("monday", 5).Claim();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(),
              HasSubstr("run tuesday of the job has taken over from this one, run monday"));
  // Nor after others, nor by another generation of the one that did.
  ASSERT_TRUE(Open("tuesday", 1).Claim().ok());
  EXPECT_EQ(Open("monday", 6).Claim().code(), StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Open("wednesday", 0).Claim().ok());
  EXPECT_EQ(Open("monday", 7).Claim().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Open("tuesday", 2).Claim().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Open("wednesday", 0).Claim().ok());
}

TEST_F(DirectoryTest, RemembersTheLatestOfVeryManyRuns) {
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(Open(std::to_string(1'000'000 + i) + std::string(25, 'x'), 0).Claim().ok());
  }
  EXPECT_EQ(Open("1000298" + std::string(25, 'x'), 1).Claim().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Open("1000299" + std::string(25, 'x'), 1).Claim().ok());
}

TEST_F(DirectoryTest, PrefersTheLaterTermToTheLaterStep) {
  Directory before = Open("run", 0);
  ExpectSaved(before, 50);
  Directory after = Open("run", 1);
  ExpectSaved(after, 40);  // it resumed from an older one, since 50 could not be read
  EXPECT_EQ(Newest()->snapshot.step, 40);
}

TEST_F(DirectoryTest, AnOldGenerationThatIsPastItsCheckHarmsNothing) {
  // As if it had been frozen between its last check and its rename, and thawed now.
  Directory old = Open("run", 0, 1);
  ExpectSaved(old, 10);
  Directory next = Open("run", 1, 1);
  ExpectSaved(next, 20);
  Directory writer = Open("elsewhere", 0);
  WriteBytes(path_ + "/" + CheckpointName({.term = 1, .step = 20}), "zombie");
  WriteBytes(path_ + "/" + CheckpointName({.term = 1, .step = 30}), "zombie");
  EXPECT_EQ(Newest()->snapshot.step, 20);
  ExpectSaved(next, 21);
  EXPECT_THAT(Checkpoints(), ElementsAre("step-000000021-term-000002.ckpt"));
}

TEST_F(DirectoryTest, RemovesWhatCrashedWritersLeft) {
  Directory old = Open("run", 0);
  ExpectSaved(old, 10);
  WriteBytes(path_ + "/" + TemporaryName(CheckpointName({.term = 1, .step = 20})), "half");
  Directory next = Open("run", 1);
  ASSERT_TRUE(next.Claim().ok());
  EXPECT_THAT(NamesIn(path_), ElementsAre("step-000000010-term-000001.ckpt", "term-000002"));
}

TEST_F(DirectoryTest, TakesATermOfItsOwnWhenManyClaimAtOnce) {
  std::vector<Directory> directories;
  for (int i = 0; i < 8; ++i) directories.push_back(Open("run " + std::to_string(i), 0));
  std::vector<std::thread> threads;
  for (Directory& directory : directories) {
    threads.emplace_back([&directory] { EXPECT_TRUE(directory.Claim().ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  int writers = 0;
  for (Directory& directory : directories) writers += directory.Save(SomeSnapshot(1)).ok();
  EXPECT_EQ(writers, 1);
}

TEST_F(DirectoryTest, GoesOnAfterTheTermsOfCheckpointsWhoseClaimIsGone) {
  Directory before = Open("run", 0);
  ExpectSaved(before, 10);
  std::filesystem::remove(path_ + "/term-000001");
  Directory after = Open("other", 0);
  ExpectSaved(after, 5);
  EXPECT_EQ(Newest()->snapshot.step, 5);
}

TEST_F(DirectoryTest, WritesOnWhenSomebodyDeletedTheFolder) {
  Directory directory = Open("run", 0);
  ExpectSaved(directory, 10);
  std::filesystem::remove_all(path_);
  ExpectSaved(directory, 20);
  EXPECT_EQ(Newest()->snapshot.step, 20);
}

TEST_F(DirectoryTest, TakesADamagedClaimForNobodys) {
  Directory before = Open("run", 5);
  ASSERT_TRUE(before.Claim().ok());
  WriteBytes(path_ + "/term-000001", "");
  EXPECT_TRUE(Open("run", 1).Claim().ok());
}

TEST_F(DirectoryTest, RefusesAnotherJobsCheckpointSayingWhatDiffers) {
  Directory directory = Open("run", 0);
  ExpectSaved(directory, 10);
  Signature job = SomeSignature();
  job.variables[0].shape = {4, 4};
  try {
    directory.LoadNewest(job, &warnings_);
    FAIL() << "loaded";
  } catch (const BadModel& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("step-000000010"), HasSubstr("dense/kernel [4, 3]"),
                                    HasSubstr("another checkpoint directory")));
  }
}

TEST_F(DirectoryTest, ResumesInAnotherPrecisionWithAWarning) {
  Directory directory = Open("run", 0);
  ExpectSaved(directory, 10);
  Signature job = SomeSignature();
  job.precision = "BFloat16";
  ASSERT_TRUE(directory.LoadNewest(job, &warnings_));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("was trained in Float32, the job goes on in BFloat16")));
}

TEST_F(DirectoryTest, LoadsWhileAnotherWrites) {
  Directory writer = Open("run", 0, 1);
  ExpectSaved(writer, 1);
  std::thread thread([&] {
    for (int64_t step = 2; step <= 300; ++step) ExpectSaved(writer, step);
  });
  int64_t last = 0;
  while (last < 300) {
    const auto newest = Newest();
    EXPECT_TRUE(newest);
    EXPECT_THAT(warnings_, IsEmpty());
    if (!newest) break;
    EXPECT_GE(newest->snapshot.step, last);
    last = newest->snapshot.step;
    ExpectSame(newest->snapshot, SomeSnapshot(last));
  }
  thread.join();
}

TEST(CheckpointNameTest, IsReadBackExactly) {
  const CheckpointId id{.term = 1234567, .step = 12345678901};
  EXPECT_EQ(ParseCheckpointName(CheckpointName(id)), id);
  EXPECT_EQ(ParseTemporaryName(TemporaryName(CheckpointName(id))), id);
  EXPECT_EQ(ParseClaimName(ClaimName(3)), 3);
  for (const char* wrong :
       {"", "step-", "step-000000001-term-000001.ckp", "step-000000001-term-000001.ckpt ",
        "step-1-term-000001.ckpt", "step--00000001-term-000001.ckpt", "xstep-000000001-term-000001.ckpt",
        "step-000000001-term-9223372036854775807.ckpt"}) {
    EXPECT_FALSE(ParseCheckpointName(wrong)) << wrong;
  }
  EXPECT_FALSE(ParseCheckpointName(TemporaryName(CheckpointName(id))));
  EXPECT_FALSE(ParseClaimName("term-1"));
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
