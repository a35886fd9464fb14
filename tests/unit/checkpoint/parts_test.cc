#include "trainer/checkpoint/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/checkpoint/snapshots.h"
#include "trainer/checkpoint/directory_names.h"

namespace lockstep::trainer::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Signature LargeSignature() {
  Signature signature = SomeSignature();
  signature.variables = {{"a", {40, 3}}, {"b", {3}}, {"c", {7, 7}}, {"d", {100}}, {"e", {1}}};
  signature.state = {{"n/mean", {5}}, {"n/variance", {5}}};
  return signature;
}

Snapshot LargeSnapshot(int64_t step) {
  Snapshot snapshot = SomeSnapshot(step);
  snapshot.signature = LargeSignature();
  std::mt19937 random(static_cast<unsigned>(step));
  const auto values = [&random](int64_t count) {
    std::vector<float> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(static_cast<float>(random()));
    return all;
  };
  snapshot.parameters = values(snapshot.signature.elements());
  for (auto& slot : snapshot.slots) slot = values(snapshot.signature.elements());
  snapshot.state = values(snapshot.signature.state_elements());
  return snapshot;
}

// Of `chosen` among `all`, whose values are one after another.
std::vector<float> ValuesOf(const std::vector<Variable>& all, const std::vector<size_t>& chosen,
                            const std::vector<float>& values) {
  std::vector<float> some;
  size_t offset = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto size = static_cast<size_t>(all[i].elements());
    if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) {
      some.insert(some.end(), values.begin() + static_cast<long>(offset),
                  values.begin() + static_cast<long>(offset + size));
    }
    offset += size;
  }
  return some;
}

std::vector<Snapshot> Divide(const Snapshot& whole, int count) {
  std::vector<Snapshot> parts;
  for (int p = 0; p < count; ++p) {
    std::vector<size_t> variables, state;  // every count-th
    for (auto i = static_cast<size_t>(p); i < 5; i += static_cast<size_t>(count)) variables.push_back(i);
    for (auto i = static_cast<size_t>(p); i < 2; i += static_cast<size_t>(count)) state.push_back(i);
    Snapshot part = whole;
    part.signature = SignatureOf(whole.signature, variables, state);
    part.parameters = ValuesOf(whole.signature.variables, variables, whole.parameters);
    for (size_t i = 0; i < whole.slots.size(); ++i) {
      part.slots[i] = ValuesOf(whole.signature.variables, variables, whole.slots[i]);
    }
    part.state = ValuesOf(whole.signature.state, state, whole.state);
    parts.push_back(std::move(part));
  }
  return parts;
}

Snapshot IndexOf(const Snapshot& whole, std::vector<Seal> seals) {
  Snapshot index = whole;
  index.parameters.clear();
  index.slots.clear();
  index.state.clear();
  index.parts = std::move(seals);
  return index;
}

class PartsTest : public ::testing::Test {
 protected:
  std::vector<Seal> WriteParts(const Directory& directory, const Snapshot& whole, int count) {
    std::vector<Seal> seals;
    for (const Snapshot& part : Divide(whole, count)) {
      const PartNumber number{.number = static_cast<int64_t>(seals.size()), .count = count};
      const Result<Seal> seal = directory.SavePart(directory.term(), number, part);
      EXPECT_TRUE(seal.ok()) << seal.status().ToString();
      seals.push_back(seal.ok() ? *seal : Seal{});
    }
    return seals;
  }

  Result<std::string> Save(Directory& directory, int64_t step, int count) {
    const Snapshot whole = LargeSnapshot(step);
    return directory.Save(IndexOf(whole, WriteParts(directory, whole, count)));
  }

  std::optional<Directory::Loaded> Newest() {
    warnings_.clear();
    return Directory({.path = path_}).LoadNewest(LargeSignature(), &warnings_);
  }

  std::string PathOfPart(int64_t step, int64_t number, int64_t count, int64_t term = 1) const {
    return path_ + "/" + PartName({.term = term, .step = step}, {.number = number, .count = count});
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.File("checkpoints");
  Directory directory_{{.path = path_, .run = "run", .keep = 2}};
  std::vector<std::string> warnings_;
};

TEST_F(PartsTest, AreReadAsTheWhole) {
  ASSERT_TRUE(directory_.Claim().ok());
  for (const int count : {1, 2, 5, 8}) {
    const Result<std::string> saved = Save(directory_, count, count);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto newest = Newest();
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->path, *saved);
    EXPECT_THAT(warnings_, IsEmpty());
    ExpectSame(newest->snapshot, LargeSnapshot(count));
    ExpectSame(Directory::Load(*saved, LargeSignature()), LargeSnapshot(count));
  }
}

TEST_F(PartsTest, OfACheckpointThatIsDeletedAreDeleted) {
  ASSERT_TRUE(directory_.Claim().ok());
  for (const int64_t step : {10, 20, 30}) ASSERT_TRUE(Save(directory_, step, 2).ok());
  EXPECT_THAT(
      NamesIn(path_),
      ElementsAre("step-000000020-term-000001.ckpt", "step-000000020-term-000001.ckpt.part-00000-of-00002",
                  "step-000000020-term-000001.ckpt.part-00001-of-00002", "step-000000030-term-000001.ckpt",
                  "step-000000030-term-000001.ckpt.part-00000-of-00002",
                  "step-000000030-term-000001.ckpt.part-00001-of-00002", "term-000001"));
}

TEST_F(PartsTest, AreNothingUntilAllAreThere) {
  ASSERT_TRUE(directory_.Claim().ok());
  ASSERT_TRUE(Save(directory_, 10, 2).ok());
  const Snapshot next = LargeSnapshot(20);
  std::vector<Seal> seals = WriteParts(directory_, next, 2);
  EXPECT_EQ(Newest()->snapshot.step, 10);
  std::filesystem::remove(PathOfPart(20, 1, 2));
  const Result<std::string> saved = directory_.Save(IndexOf(next, seals));
  EXPECT_EQ(saved.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(saved.status().message(), HasSubstr(PathOfPart(20, 1, 2)));
  EXPECT_EQ(Newest()->snapshot.step, 10);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PartsTest, ThatNobodyNamedAreRemovedByTheNextWriter) {
  ASSERT_TRUE(directory_.Claim().ok());
  ASSERT_TRUE(Save(directory_, 10, 2).ok());
  WriteParts(directory_, LargeSnapshot(20), 2);
  WriteBytes(TemporaryName(PathOfPart(20, 1, 2)), "half");
  Directory next({.path = path_, .run = "run", .generation = 1});
  ASSERT_TRUE(next.Claim().ok());
  EXPECT_EQ(NamesIn(path_).size(), 4u);  // the checkpoint, its parts, the claim
  EXPECT_EQ(Newest()->snapshot.step, 10);
}

TEST_F(PartsTest, OfWhatComesNextStayWhileTheOneBeforeIsNamed) {
  ASSERT_TRUE(directory_.Claim().ok());
  const Snapshot first = LargeSnapshot(10), second = LargeSnapshot(20);
  const std::vector<Seal> seals = WriteParts(directory_, first, 2);
  const std::vector<Seal> seals_after = WriteParts(directory_, second, 2);
  ASSERT_TRUE(directory_.Save(IndexOf(first, seals)).ok());
  ASSERT_TRUE(directory_.Save(IndexOf(second, seals_after)).ok());
  ExpectSame(Newest()->snapshot, second);
}

TEST_F(PartsTest, ThatAreDamagedOrMixedUpMakeTheOneBeforeTheNewest) {
  ASSERT_TRUE(directory_.Claim().ok());
  ASSERT_TRUE(Save(directory_, 10, 2).ok());
  ASSERT_TRUE(Save(directory_, 20, 2).ok());
  const std::string path = PathOfPart(20, 0, 2);
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto expect_fallback = [&](const std::string& changed, const std::string& why) {
    WriteBytes(path, changed);
    const auto newest = Newest();
    ASSERT_TRUE(newest);
    ExpectSame(newest->snapshot, LargeSnapshot(10));
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr(why)));
  };
  expect_fallback(bytes.substr(0, bytes.size() - 1), "bytes instead of");
  for (const size_t at : {size_t{9}, size_t{70}, bytes.size() / 2, bytes.size() - 1}) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    expect_fallback(flipped, "part 0 of 2");
  }
  std::filesystem::remove(path);
  std::filesystem::copy_file(PathOfPart(20, 1, 2), path);
  EXPECT_EQ(Newest()->snapshot.step, 10);
  std::filesystem::remove(path);
  EXPECT_EQ(Newest()->snapshot.step, 10);
  WriteBytes(path, bytes);
  EXPECT_EQ(Newest()->snapshot.step, 20);
}

TEST_F(PartsTest, TooShortForTheirVariablesTakeNoMemory) {
  ASSERT_TRUE(directory_.Claim().ok());
  Snapshot huge = LargeSnapshot(10);
  const std::vector<Seal> seals = WriteParts(directory_, huge, 2);
  huge.signature.variables = {{"a", {int64_t{1} << 38}}};
  ASSERT_TRUE(directory_.Save(IndexOf(huge, seals)).ok());
  Signature job = LargeSignature();
  job.variables = huge.signature.variables;
  EXPECT_FALSE(directory_.LoadNewest(job, &warnings_));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("too short for its variables")));
}

TEST(AssemblyTest, TakesEveryVariableOnce) {
  const Snapshot whole = LargeSnapshot(3);
  const std::vector<Snapshot> parts = Divide(whole, 2);
  Assembly assembly(IndexOf(whole, {{}, {}}));
  ASSERT_TRUE(assembly.Add(parts[0]).ok());
  EXPECT_THAT(assembly.Add(parts[0]).message(), HasSubstr("is there twice"));
  const Result<Snapshot> finished = std::move(assembly).Finish();
  EXPECT_THAT(finished.status().message(), HasSubstr("none of its parts has b"));
}

TEST(AssemblyTest, RefusesWhatIsOfAnother) {
  const Snapshot whole = LargeSnapshot(3);
  Assembly assembly(IndexOf(whole, {{}, {}}));
  Snapshot other = LargeSnapshot(4);
  EXPECT_THAT(assembly.Add(other).message(), HasSubstr("step 4"));
  other = LargeSnapshot(3);
  other.signature.variables[1].shape = {1, 3};
  EXPECT_THAT(assembly.Add(other).message(), HasSubstr("b is not of this checkpoint"));
  other = LargeSnapshot(3);
  other.signature.slots = {"m"};
  EXPECT_FALSE(assembly.Add(other).ok());
}

TEST(PartNameTest, IsReadBackExactly) {
  const CheckpointId id{.term = 2, .step = 120};
  const std::string name = PartName(id, {.number = 3, .count = 8});
  EXPECT_EQ(name, "step-000000120-term-000002.ckpt.part-00003-of-00008");
  EXPECT_EQ(ParsePartName(name), id);
  EXPECT_FALSE(ParseCheckpointName(name));
  EXPECT_FALSE(ParsePartName(TemporaryName(name)));
  EXPECT_EQ(ParseTemporaryName(TemporaryName(name)), id);
  EXPECT_FALSE(ParsePartName(name + "0"));
  EXPECT_FALSE(ParsePartName(CheckpointName(id)));
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
