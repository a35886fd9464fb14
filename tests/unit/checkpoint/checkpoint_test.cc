#include "trainer/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "tests/unit/checkpoint/snapshots.h"
#include "trainer/checkpoint/crc32c.h"
#include "trainer/checkpoint/format.h"

namespace lockstep::trainer::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckpointTest : public ::testing::Test {
 protected:
  std::string Write(const Snapshot& snapshot) const {
    const UniqueFd file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const Status status = WriteSnapshot(file.get(), snapshot).status();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return testing::ReadText(path_);
  }

  Result<Snapshot> Read(const std::string& bytes) const {
    const UniqueFd file(::memfd_create("checkpoint", MFD_CLOEXEC));
    EXPECT_EQ(::write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return ReadSnapshot(file.get());
  }

  // Changes what a checksum covers, and the checksums too: what a hostile or mistaken writer could have
  // written.
  static std::string Resealed(std::string bytes) {
    FileHeader header;
    if (bytes.size() < sizeof header) return bytes;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t count =
        std::min<size_t>(header.sections, (bytes.size() - sizeof header) / sizeof(SectionEntry));
    if (count == 0) return bytes;
    std::vector<SectionEntry> entries(count);
    std::memcpy(entries.data(), bytes.data() + sizeof header, count * sizeof(SectionEntry));
    for (SectionEntry& entry : entries) {
      if (entry.offset > bytes.size() || entry.bytes > bytes.size() - entry.offset) continue;
      entry.crc = Crc32c(std::as_bytes(std::span(bytes.data() + entry.offset, entry.bytes)));
    }
    header.crc = HeaderCrc(header, entries);
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, entries.data(), count * sizeof(SectionEntry));
    return bytes;
  }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_.File("checkpoint");
};

TEST_F(CheckpointTest, ReadsWhatItWrote) {
  const Snapshot snapshot = SomeSnapshot(120);
  Write(snapshot);
  const Result<Snapshot> read = ReadFrom(path_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectSame(*read, snapshot);
}

TEST_F(CheckpointTest, KeepsStateAndOnlyThenIsOfTheNewVersion) {
  const auto version_of = [](const std::string& bytes) {
    FileHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    return header.version;
  };
  Snapshot snapshot = SomeSnapshot(120);
  EXPECT_EQ(version_of(Write(snapshot)), kVersionWithoutState);

  snapshot.signature.state = {{.name = "bn/moving_mean", .shape = {3}}, {.name = "bn/n", .shape = {2, 1}}};
  snapshot.state = {1, 2, 3, 4, 5};
  EXPECT_EQ(version_of(Write(snapshot)), kVersionWithoutParts);
  const Result<Snapshot> read = ReadFrom(path_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectSame(*read, snapshot);
  EXPECT_THAT(Difference(SomeSignature(), snapshot.signature), HasSubstr("pieces of state"));

  std::string bytes = Write(snapshot);
  bytes.back() ^= 1;
  EXPECT_EQ(Read(bytes).status().message(), "state: wrong checksum");
  snapshot.state.pop_back();
  const UniqueFd file(::memfd_create("checkpoint", MFD_CLOEXEC));
  EXPECT_EQ(WriteSnapshot(file.get(), snapshot).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(CheckpointTest, KeepsEveryBitOfEveryFloat) {
  Snapshot snapshot = SomeSnapshot(1);
  snapshot.parameters[0] = std::numeric_limits<float>::quiet_NaN();
  snapshot.parameters[1] = -0.0f;
  snapshot.parameters[2] = std::numeric_limits<float>::denorm_min();
  Write(snapshot);
  const Result<Snapshot> read = ReadFrom(path_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::memcmp(read->parameters.data(), snapshot.parameters.data(), 15 * sizeof(float)), 0);
}

TEST_F(CheckpointTest, WritesTheSameBytesForTheSameSnapshot) {
  EXPECT_EQ(Write(SomeSnapshot(3)), Write(SomeSnapshot(3)));
  EXPECT_NE(Write(SomeSnapshot(3)), Write(SomeSnapshot(4)));
}

TEST_F(CheckpointTest, TakesAnOptimizerWithoutSlotsAndNoMetadata) {
  Snapshot snapshot = SomeSnapshot(1);
  snapshot.signature.optimizer = "SGD";
  snapshot.signature.slots.clear();
  snapshot.slots.clear();
  snapshot.metadata.clear();
  Write(snapshot);
  const Result<Snapshot> read = ReadFrom(path_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectSame(*read, snapshot);
}

TEST_F(CheckpointTest, RefusesToWriteWhatDoesNotFitTogether) {
  const UniqueFd file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const auto spoil : std::vector<void (*)(Snapshot*)>{
           [](Snapshot* snapshot) { snapshot->parameters.pop_back(); },
           [](Snapshot* snapshot) { snapshot->slots.pop_back(); },
           [](Snapshot* snapshot) { snapshot->slots[1].push_back(0); },
           [](Snapshot* snapshot) { snapshot->step = -1; },
           [](Snapshot* snapshot) { snapshot->metadata.resize((size_t{1} << 20) + 1); }}) {
    Snapshot snapshot = SomeSnapshot(1);
    spoil(&snapshot);
    EXPECT_EQ(WriteSnapshot(file.get(), snapshot).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(CheckpointTest, RefusesEveryTruncation) {
  const std::string whole = Write(SomeSnapshot(5));
  for (size_t length = 0; length < whole.size(); ++length) {
    const Result<Snapshot> read = Read(whole.substr(0, length));
    ASSERT_EQ(read.status().code(), StatusCode::kInvalidArgument) << length;
    ASSERT_THAT(read.status().message(), StartsWith("cut short")) << length;
  }
}

TEST_F(CheckpointTest, RefusesEveryFlippedBit) {
  const std::string whole = Write(SomeSnapshot(5));
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    ASSERT_FALSE(Read(flipped).ok()) << "bit " << bit;
  }
}

TEST_F(CheckpointTest, RefusesAnythingBehindTheEnd) {
  EXPECT_THAT(Read(Write(SomeSnapshot(5)) + "x").status().message(), StartsWith("too long"));
}

TEST_F(CheckpointTest, SaysWhichSectionIsDamaged) {
  std::string bytes = Write(SomeSnapshot(5));
  bytes.back() ^= 1;
  EXPECT_EQ(Read(bytes).status().message(), "slot v: wrong checksum");
}

TEST_F(CheckpointTest, SaysThatAVersionIsNotKnown) {
  std::string bytes = Write(SomeSnapshot(5));
  bytes[offsetof(FileHeader, version)] = kVersion + 1;
  const Result<Snapshot> read = Read(Resealed(bytes));
  EXPECT_EQ(read.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(read.status().message(), HasSubstr("version " + std::to_string(kVersion + 1)));
}

TEST_F(CheckpointTest, SurvivesAnyBytesEvenUnderRightChecksums) {
  const std::string whole = Write(SomeSnapshot(5));
  std::mt19937_64 random(1);
  int read_fine = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string mutated = whole;
    // Half of the changes go where the structure is.
    const size_t most = i % 2 == 0 ? whole.size() : 64 + 5 * 24 + 300;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      mutated[random() % most] = static_cast<char>(random());
    if (random() % 8 == 0) mutated.resize(random() % (2 * whole.size()));
    const Result<Snapshot> read = Read(Resealed(mutated));
    if (!read.ok()) continue;
    ++read_fine;
    ASSERT_EQ(static_cast<int64_t>(read->parameters.size()), read->signature.elements());
    ASSERT_EQ(read->slots.size(), read->signature.slots.size());
  }
  EXPECT_GT(read_fine, 100);  // or the mutations would not get past the checksums
}

TEST_F(CheckpointTest, RefusesImpossibleShapes) {
  Snapshot snapshot = SomeSnapshot(5);
  snapshot.signature.variables[0].name = std::string(40, 'n');
  const std::string bytes = Write(snapshot);
  const std::string variable = "\"name\":\"" + std::string(40, 'n') + "\",\"shape\":[4,3]";
  const size_t at = bytes.find(variable);
  ASSERT_NE(at, std::string::npos);
  for (const char* shape :
       {"[-4,-3]", "[0]", "[-9223372036854775808]", "[4294967296,4294967296]", "[1099511627777]"}) {
    std::string changed = std::string("\"name\":\"n\",\"shape\":") + shape;
    ASSERT_LE(changed.size(), variable.size());
    changed.resize(variable.size(), ' ');
    const Result<Snapshot> read = Read(Resealed(std::string(bytes).replace(at, changed.size(), changed)));
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.status().message(), HasSubstr("the shape of n is impossible")) << shape;
  }
}

TEST(SignatureTest, SaysWhatDiffers) {
  const Signature ours = SomeSignature();
  EXPECT_EQ(Difference(ours, ours), "");
  Signature theirs = ours;
  theirs.precision = "BFloat16";
  EXPECT_EQ(Difference(theirs, ours), "");

  theirs = ours;
  theirs.variables[0].shape = {4, 5};
  EXPECT_EQ(Difference(theirs, ours),
            "it has the variable dense/kernel [4, 5] where the job's model has dense/kernel [4, 3]");
  theirs = ours;
  theirs.variables.pop_back();
  EXPECT_EQ(Difference(theirs, ours), "it has 1 variables, the job's model 2");
  theirs = ours;
  theirs.optimizer = "SGD";
  theirs.slots = {};
  EXPECT_EQ(Difference(theirs, ours), "its optimizer is SGD (), the job's Adam (m, v)");
  theirs = ours;
  theirs.seed = 8;
  EXPECT_EQ(Difference(theirs, ours), "its seed is 8, the job's 7");
  theirs = ours;
  theirs.training_samples = 99;
  EXPECT_EQ(Difference(theirs, ours), "it was trained on 99 samples, the job has 100");
}

}  // namespace
}  // namespace lockstep::trainer::checkpoint
