#include "launcher/ledger/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/placement/builders.h"

namespace lockstep::ledger {
namespace {

using placement::testing::GpuMachine;
using placement::testing::kGiB;
using placement::testing::ProgramJob;
using placement::testing::Uuid;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Of a job with these devices on this machine.
std::vector<Use> Uses(const spec::Devices& devices, const placement::Inventory& inventory,
                      spec::Framework framework = spec::Framework::kJax) {
  spec::TrainingJob job = ProgramJob(framework);
  job.roles[0].devices = devices;
  const auto assignment = placement::AssignDevices(job, {.inventory = inventory});
  EXPECT_TRUE(assignment.ok()) << assignment.status().message();
  return assignment.ok() ? UsesOf(*assignment, inventory) : std::vector<Use>();
}

spec::Devices Fraction(double fraction) {
  spec::Devices devices;
  devices.memory = {.policy = spec::MemoryPolicy::kFraction, .limit = std::nullopt, .fraction = fraction};
  return devices;
}

TEST(UsesOfTest, PromisesWhatThePoliciesSay) {
  spec::Devices growth;
  spec::Devices preallocate;
  preallocate.memory.policy = spec::MemoryPolicy::kPreallocate;
  spec::Devices limit;
  limit.memory = {.policy = spec::MemoryPolicy::kLimit, .limit = 10 * kGiB, .fraction = std::nullopt};
  spec::Devices virtual_four;
  virtual_four.virtual_devices = {.per_device = 4, .memory_limit = kGiB};
  const struct {
    spec::Devices devices;
    const char* policy;
    int64_t bytes;
    int processes;
  } kCases[] = {{growth, "Growth", 0, 1},
                {preallocate, "Preallocate", 80 * kGiB, 1},
                {limit, "Limit", 10 * kGiB, 1},
                {Fraction(0.5), "Fraction", 40 * kGiB, 1},
                {virtual_four, "Limit", 4 * kGiB, 4}};
  for (const auto& test : kCases) {
    const auto uses = Uses(test.devices, GpuMachine(2));
    ASSERT_EQ(uses.size(), 2u) << test.policy;
    EXPECT_EQ(uses[1].device, Uuid(1));
    EXPECT_EQ(uses[1].policy, test.policy);
    EXPECT_EQ(uses[1].bytes, test.bytes) << test.policy;
    EXPECT_EQ(uses[1].total_bytes, 80 * kGiB);
    EXPECT_EQ(uses[1].processes, test.processes);
  }
}

TEST(UsesOfTest, SpeaksInSharesWhereTheSizeIsNotKnown) {
  EXPECT_DOUBLE_EQ(Uses(Fraction(0.4), GpuMachine(1, 0))[0].share, 0.4);
  spec::Devices preallocate;
  preallocate.memory.policy = spec::MemoryPolicy::kPreallocate;
  EXPECT_DOUBLE_EQ(Uses(preallocate, GpuMachine(1, 0))[0].share, 1);
}

TEST(UsesOfTest, CountsSlicesByThemselves) {
  placement::Inventory inventory = placement::testing::MigMachine(2);
  inventory.gpus.resize(1);
  const auto uses = Uses(Fraction(0.5), inventory);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].device, placement::testing::SliceUuid(0));
  EXPECT_EQ(uses[0].bytes, 5 * kGiB / 2);
}

TEST(UsesOfTest, IsEmptyOnTheCpu) {
  spec::Devices cpu;
  cpu.type = spec::DeviceType::kCpu;
  EXPECT_THAT(Uses(cpu, GpuMachine(2)), IsEmpty());
}

Claim Held(Use use, const std::string& job = "first") {
  return {.use = std::move(use),
          .job = job,
          .namespace_name = "default",
          .user = "alice",
          .pid = 4711,
          .since = {}};
}

// The guides' two programs on one GPU.
TEST(CheckFitsTest, LetsTwoShareADeviceAsFarAsItGoes) {
  const struct {
    double held;
    double wanted;
    bool fits;
  } kCases[] = {{0.5, 0.5, true}, {0.4, 0.4, true}, {0.5, 0.6, false}, {0.9, 0.1, true}, {1, 0.001, false}};
  for (const int64_t memory : {80 * kGiB, int64_t{0}}) {
    for (const auto& test : kCases) {
      const Use held = Uses(Fraction(test.held), GpuMachine(1, memory))[0];
      const Use wanted = Uses(Fraction(test.wanted), GpuMachine(1, memory))[0];
      EXPECT_EQ(CheckFits(wanted, {Held(held)}).ok(), test.fits) << test.held << " + " << test.wanted;
    }
  }
}

TEST(CheckFitsTest, SaysWhoHoldsWhatAndWhatIsFree) {
  const Use half = Uses(Fraction(0.5), GpuMachine(1))[0];
  const Use more = Uses(Fraction(0.6), GpuMachine(1))[0];
  const Status refused = CheckFits(more, {Held(half)});
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(
      refused.message(),
      "device " + Uuid(0) +
          " is promised to others: job default/first of alice (pid 4711, since 1970-01-01T00:00:00Z) holds "
          "40 GiB (Fraction); this job takes 48 GiB (Fraction), and 40 GiB of 80 GiB is free");
}

TEST(CheckFitsTest, CountsAllHoldersAndOnlyThoseOfTheDevice) {
  const Use third = Uses(Fraction(0.3), GpuMachine(1))[0];
  EXPECT_TRUE(CheckFits(third, {Held(third), Held(third, "second")}).ok());
  const Status refused = CheckFits(third, {Held(third), Held(third, "second"), Held(third, "third")});
  EXPECT_THAT(refused.message(), HasSubstr("default/second"));
  Use elsewhere = third;
  elsewhere.device = Uuid(5);
  EXPECT_TRUE(CheckFits(third, {Held(third), Held(third), Held(elsewhere)}).ok());
}

TEST(CheckFitsTest, LetsGrowthStandBesideAnything) {
  const Use growth = Uses({}, GpuMachine(1))[0];
  const Use all = Uses(Fraction(1), GpuMachine(1))[0];
  EXPECT_TRUE(CheckFits(growth, {Held(all)}).ok());
  EXPECT_TRUE(CheckFits(all, {Held(growth), Held(growth)}).ok());
}

TEST(DescribeTest, GivesATerminalNothingToObey) {
  Claim claim = Held(Uses(Fraction(0.5), GpuMachine(1))[0], "evil\x1b[2Jjob\n");
  EXPECT_THAT(Describe(claim), HasSubstr("evil?[2Jjob?"));
  EXPECT_THAT(Describe(claim), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace lockstep::ledger
