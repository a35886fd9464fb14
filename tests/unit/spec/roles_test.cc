#include "launcher/spec/roles.h"

#include <gtest/gtest.h>

namespace lockstep::spec {
namespace {

TrainingJob ThreeRoles() {
  TrainingJob job;
  job.roles = {{.name = "ps", .replicas = 2}, {.name = "worker", .replicas = 3}, {.name = "evaluator"}};
  job.program.emplace();
  job.program->command = {"train"};
  return job;
}

TEST(RolesTest, ReplicasAreCountedOverAllRoles) {
  const TrainingJob job = ThreeRoles();
  EXPECT_EQ(ReplicasOf(job), 6);
  EXPECT_EQ(SeatOf(job, 0), (Seat{.role = 0, .index = 0}));
  EXPECT_EQ(SeatOf(job, 1), (Seat{.role = 0, .index = 1}));
  EXPECT_EQ(SeatOf(job, 2), (Seat{.role = 1, .index = 0}));
  EXPECT_EQ(SeatOf(job, 4), (Seat{.role = 1, .index = 2}));
  EXPECT_EQ(SeatOf(job, 5), (Seat{.role = 2, .index = 0}));
  for (int replica = 0; replica < ReplicasOf(job); ++replica) {
    const Seat seat = SeatOf(job, replica);
    EXPECT_EQ(FirstReplicaOf(job, job.roles[static_cast<size_t>(seat.role)].name) + seat.index, replica);
  }
}

TEST(RolesTest, WorkersAndTheChiefEndTheJob) {
  TrainingJob job;
  job.roles = {{.name = "chief"}, {.name = "worker"}, {.name = "evaluator"}};
  EXPECT_TRUE(EndsJob(job, "worker"));
  EXPECT_TRUE(EndsJob(job, "chief"));
  EXPECT_FALSE(EndsJob(job, "ps"));
  EXPECT_FALSE(EndsJob(job, "evaluator"));
}

TEST(RolesTest, BesideServersTheChiefAloneEndsTheJob) {
  TrainingJob job;
  job.roles = {{.name = "worker"}, {.name = "ps"}};
  EXPECT_TRUE(EndsJob(job, "worker"));
  job.roles.push_back({.name = "chief"});
  EXPECT_FALSE(EndsJob(job, "worker"));
  EXPECT_TRUE(EndsJob(job, "chief"));
}

TEST(RolesTest, ProcessesRestartAloneWhereThereAreServers) {
  TrainingJob job = ThreeRoles();
  EXPECT_TRUE(RestartsAlone(job));
  job.roles.erase(job.roles.begin());
  EXPECT_FALSE(RestartsAlone(job));
}

TEST(RolesTest, ARolesOwnProgramComesFirst) {
  TrainingJob job = ThreeRoles();
  job.roles[2].program.emplace();
  job.roles[2].program->command = {"evaluate"};
  EXPECT_EQ(ProgramOf(job, job.roles[0])->command.front(), "train");
  EXPECT_EQ(ProgramOf(job, job.roles[2])->command.front(), "evaluate");
  job.program.reset();
  EXPECT_EQ(ProgramOf(job, job.roles[0]), nullptr);
}

TEST(RolesTest, ATopologysChipsAreSharedEvenly) {
  const struct {
    const char* topology;
    int replicas;
    int chips;
  } kCases[] = {{"2x4", 2, 4}, {"2x4", 1, 8}, {"4x4", 4, 4}, {"2x2x2", 2, 4}, {"2x4", 3, 0}, {"1x1", 1, 1}};
  for (const auto& test : kCases) {
    Role role{.replicas = test.replicas};
    role.devices.type = DeviceType::kTpu;
    role.devices.topology = test.topology;
    EXPECT_EQ(TpuChipsOf(role), test.chips) << test.topology << " over " << test.replicas;
  }
  EXPECT_EQ(TpuChipsOf(Role()), 0);
}

}  // namespace
}  // namespace lockstep::spec
