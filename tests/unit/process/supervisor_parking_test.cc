#include <gmock/gmock.h>
#include <sys/wait.h>

#include <map>
#include <string>
#include <vector>

#include "launcher/process/supervisor.h"
#include "tests/unit/process/test_util.h"

// Processes that outlive their generation.
namespace lockstep::process {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr auto kLongGrace = std::chrono::hours(1);

// Says "up", and then each line that it is told.
Launch Listener(int rank) {
  return Shell(rank, "echo up >&3; while read line <&4; do echo \"$line\" >&3; done");
}
// That ends well when it is asked to stop.
Launch PoliteListener(int rank) {
  return Shell(rank, "trap 'exit 75' TERM; echo up >&3; while :; do sleep 0.01; done");
}

class SupervisorParkingTest : public testing::Test {
 protected:
  // The first launches, once each has said that it is up.
  void StartAndWait(const std::vector<Launch>& launches) {
    ASSERT_TRUE(supervisor.Start(launches).ok());
    ASSERT_TRUE(RunUntil(*loop, [&] { return events.size() == launches.size(); }));
  }
  // Everybody but those that are parked is stopped at once.
  void ParkAndStop(const std::set<int>& parked) {
    for (const int local_rank : parked) {
      supervisor.MayPark(local_rank);
      EXPECT_TRUE(supervisor.Park(local_rank));
    }
    supervisor.Stop(milliseconds(0), parked);
    ASSERT_TRUE(RunToParked());
  }
  bool RunToParked() {
    return RunUntil(*loop, [&] { return supervisor.state() == Supervisor::State::kParked; });
  }
  bool RunToIdle() {
    return RunUntil(*loop, [&] { return supervisor.state() == Supervisor::State::kIdle; });
  }

  std::unique_ptr<EventLoop> loop = std::move(EventLoop::Create()).value();
  std::map<int, std::vector<std::string>> events;
  std::map<int, std::string> output;
  std::vector<ExitReport> exits;              // as they were told one by one
  std::vector<std::vector<int>> generations;  // local ranks of the reports of each
  Supervisor supervisor{
      *loop,
      {.on_output = [this](int local_rank, OutputStream,
                           std::string_view bytes) { output[local_rank] += bytes; },
       .on_event_line = [this](int local_rank,
                               std::string_view line) { events[local_rank].emplace_back(line); },
       .on_exit = [this](ExitReport& report) { exits.push_back(report); },
       .on_all_stopped =
           [this](const std::vector<ExitReport>& reports) {
             generations.emplace_back();
             for (const ExitReport& report : reports) generations.back().push_back(report.local_rank);
           }}};
};

TEST_F(SupervisorParkingTest, AProcessGoesOnInTheNextGenerationUnderItsNewRank) {
  StartAndWait({Listener(0), Listener(1), Listener(2)});
  const pid_t survivor = supervisor.pid(1), lost = supervisor.pid(0);
  ParkAndStop({1});
  EXPECT_THAT(generations, ElementsAre(testing::UnorderedElementsAre(0, 2)));
  EXPECT_EQ(supervisor.pid(1), survivor);
  EXPECT_FALSE(Exists(lost));

  Launch renamed = Listener(1);
  renamed.rank = 7;
  ASSERT_TRUE(supervisor.Start({Listener(0), renamed}, {1}).ok());
  EXPECT_EQ(supervisor.state(), Supervisor::State::kRunning);
  EXPECT_EQ(supervisor.pid(1), survivor);
  EXPECT_NE(supervisor.pid(0), lost);
  EXPECT_TRUE(supervisor.Tell(1, "go on\n"));
  ASSERT_TRUE(RunUntil(*loop, [&] { return events[1].size() == 2; }));
  EXPECT_THAT(events[1], ElementsAre("up", "go on"));

  exits.clear();
  ::kill(survivor, SIGKILL);
  ASSERT_TRUE(RunUntil(*loop, [&] { return !exits.empty(); }));
  EXPECT_EQ(exits[0].rank, 7);
  EXPECT_TRUE(IsFailure(exits[0]));
  supervisor.StopNow();
  ASSERT_TRUE(RunToIdle());
  EXPECT_THAT(generations.back(), ElementsAre(1, 0)) << "of its own generation only";
}

TEST_F(SupervisorParkingTest, TheGenerationEndsWhenTheLastOfTheSparedParks) {
  StartAndWait({Listener(0), Listener(1)});
  supervisor.Stop(milliseconds(0), {1});
  ASSERT_TRUE(RunUntil(*loop, [&] { return !exits.empty(); }));
  EXPECT_EQ(supervisor.state(), Supervisor::State::kKilling);
  EXPECT_FALSE(supervisor.Park(0)) << "it has ended";
  EXPECT_TRUE(supervisor.Park(1));
  EXPECT_TRUE(generations.empty()) << "callbacks come from the loop";
  ASSERT_TRUE(RunToParked());
  EXPECT_EQ(generations.size(), 1u);
}

TEST_F(SupervisorParkingTest, WhoIsSparedAndDoesNotParkCanBeDropped) {
  StartAndWait({Listener(0), Listener(1)});
  supervisor.Stop(milliseconds(0), {0, 1});
  EXPECT_TRUE(supervisor.Park(0));
  supervisor.Drop(1);
  ASSERT_TRUE(RunToParked());
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].local_rank, 1);
  EXPECT_FALSE(IsFailure(exits[0]));
}

TEST_F(SupervisorParkingTest, TheGraceOfTheOthersDoesNotEndTheSpared) {
  TempFolder folder;
  LifeLine life(folder / "life");
  ASSERT_TRUE(supervisor.Start({Listener(0), MakeLaunch(1, {ProbePath(), "ignore-term", life.path()})}).ok());
  ASSERT_EQ(life.WaitFor(1).size(), 1u);
  supervisor.Stop(milliseconds(20), {0});
  ASSERT_TRUE(RunUntil(*loop, [&] { return !exits.empty(); }));
  EXPECT_EQ(exits[0].local_rank, 1);
  EXPECT_NE(supervisor.pid(0), 0);
  EXPECT_TRUE(supervisor.Park(0));
  ASSERT_TRUE(RunToParked());
}

// As for a ctrl-C while the ranks are asked to regroup.
TEST_F(SupervisorParkingTest, ALaterStopReachesTheSpared) {
  StartAndWait({PoliteListener(0), Listener(1), PoliteListener(2)});
  supervisor.Stop(milliseconds(0), {0, 2});
  EXPECT_TRUE(supervisor.Park(2));
  supervisor.Stop(kLongGrace);
  EXPECT_EQ(supervisor.state(), Supervisor::State::kStopping);
  ASSERT_TRUE(RunToIdle());
  ASSERT_EQ(exits.size(), 3u);
  for (const ExitReport& report : exits) EXPECT_EQ(report.exit_code, report.local_rank == 1 ? 137 : 75);
  EXPECT_EQ(generations.size(), 1u);
}

TEST_F(SupervisorParkingTest, ParkedProcessesAreAskedToStopAndThenKilled) {
  TempFolder folder;
  LifeLine life(folder / "life");
  ASSERT_TRUE(
      supervisor.Start({PoliteListener(0), MakeLaunch(1, {ProbePath(), "ignore-term", life.path()})}).ok());
  ASSERT_EQ(life.WaitFor(1).size(), 1u);
  ASSERT_TRUE(RunUntil(*loop, [&] { return events.contains(0); }));
  ParkAndStop({0, 1});
  EXPECT_EQ(generations.size(), 1u);
  supervisor.Stop(milliseconds(500));
  ASSERT_TRUE(RunToIdle());
  EXPECT_EQ(generations.size(), 2u);
  ASSERT_EQ(exits.size(), 2u);
  EXPECT_EQ(exits[0].exit_code, 75);
  EXPECT_EQ(exits[1].signal, SIGKILL);
  EXPECT_EQ(exits[1].reason, ExitReason::kStopped);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST_F(SupervisorParkingTest, AParkedProcessMayEndAndItsPlaceIsFree) {
  StartAndWait({Listener(0), Listener(1)});
  ParkAndStop({0, 1});
  const pid_t first = supervisor.pid(0);
  ::kill(first, SIGKILL);
  ASSERT_TRUE(RunUntil(*loop, [&] { return exits.size() == 1; }));
  EXPECT_EQ(supervisor.state(), Supervisor::State::kParked);
  EXPECT_EQ(supervisor.pid(0), 0);
  EXPECT_EQ(supervisor.Start({Listener(0), Listener(1)}, {0, 1}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(supervisor.Start({Listener(0)}).code(), StatusCode::kFailedPrecondition) << "1 lives";
  ASSERT_TRUE(supervisor.Start({Listener(0), Listener(1)}, {1}).ok());
  EXPECT_NE(supervisor.pid(0), 0);
  supervisor.StopNow();
  ASSERT_TRUE(RunToIdle());
  EXPECT_EQ(generations.back().size(), 2u);
}

TEST_F(SupervisorParkingTest, WhenTheLastOfTheParkedHasEndedAStopStillSweeps) {
  TempFolder folder;
  LifeLine life(folder / "life");
  // What fled from the group is found only by the sweep.
  StartAndWait({Shell(0, "(setsid env -i " + ProbePath() + " ignore-term " + life.path() +
                             " &); echo up >&3; exec sleep 1000")});
  ASSERT_EQ(life.WaitFor(1).size(), 1u);
  ParkAndStop({0});
  supervisor.Drop(0);
  ASSERT_TRUE(RunUntil(*loop, [&] { return exits.size() == 1; }));
  EXPECT_EQ(supervisor.state(), Supervisor::State::kParked);
  supervisor.Stop(kLongGrace);
  ASSERT_TRUE(RunToIdle());
  EXPECT_TRUE(life.WaitForEnd());
}

TEST_F(SupervisorParkingTest, TheGroupOfOneThatEndsIsKilledWhileTheOthersArePossiblyParked) {
  const TempFolder folder;
  StartAndWait(
      {Listener(0), Shell(1, "sleep 1000 & echo $! > '" + folder.path() + "/child'; echo up >&3; wait")});
  supervisor.MayPark(0);
  ::kill(supervisor.pid(1), SIGKILL);
  ASSERT_TRUE(RunUntil(*loop, [&] { return exits.size() == 1; }));
  const pid_t child = std::stoi(ReadAll(folder / "child"));
  EXPECT_TRUE(RunUntil(*loop, [&] { return ::kill(child, 0) != 0; }));
  ParkAndStop({0});
}

TEST_F(SupervisorParkingTest, OneThatParksAndEndsInTheSameBreathHasEnded) {
  StartAndWait({Listener(0), Listener(1)});
  EXPECT_TRUE(supervisor.Park(0));
  EXPECT_TRUE(supervisor.Park(0));  // twice is once
  ::kill(supervisor.pid(0), SIGKILL);
  ASSERT_TRUE(RunUntil(*loop, [&] { return exits.size() == 1; }));
  EXPECT_EQ(supervisor.state(), Supervisor::State::kRunning) << "1 runs";
  EXPECT_TRUE(IsFailure(exits[0]));
  supervisor.StopNow();
  ASSERT_TRUE(RunToIdle());
}

TEST_F(SupervisorParkingTest, AHundredGenerationsLeakNothing) {
  StartAndWait({Listener(0), Listener(1)});
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 100; ++i) {
    ParkAndStop({0});
    ASSERT_TRUE(supervisor.Start({Listener(0), Listener(1)}, {0}).ok());
    EXPECT_TRUE(supervisor.Tell(0, "{}\n"));
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  supervisor.StopNow();
  ASSERT_TRUE(RunToIdle());
}

}  // namespace
}  // namespace lockstep::process
