#include "launcher/process/child_process.h"

#include <sched.h>
#include <sys/resource.h>

#include <utility>

#include "launcher/process/descendants.h"
#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

// An empty one when it fails, which the test then notices too.
ChildProcess::Spawned SpawnIt(const Launch& launch) {
  ChildProcess::Spawned child;
  Result<ChildProcess::Spawned> spawned = ChildProcess::Spawn(launch);
  EXPECT_TRUE(spawned.ok()) << spawned.status().ToString();
  if (spawned.ok()) child = std::move(spawned).value();
  return child;
}

ExitStatus WaitFor(ChildProcess& process) {
  EXPECT_TRUE(WaitReadable(process.pidfd()));
  const auto status = process.TryWait();
  EXPECT_TRUE(status.has_value());
  return status.value_or(ExitStatus{.exit_code = -1});
}

std::string OutputOf(const Launch& launch) {
  auto child = SpawnIt(launch);
  const std::string text = ReadToEnd(child.pipes.out.get());
  WaitFor(child.process);
  return text;
}

TEST(ChildProcessTest, SeesOnlyStandardDescriptorsAndTheEventsPipe) {
  const int leak = ::open("/dev/null", O_RDONLY);  // not close-on-exec, as a careless library would have it
  EXPECT_EQ(OutputOf(MakeLaunch(0, {ProbePath(), "descriptors"})), "0 1 2 3 4 ");
  ::close(leak);
}

TEST(ChildProcessTest, SeesTheSameWhenTheLauncherHasNoStandardDescriptors) {
  // In a child, as the test itself needs its own.
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int result = ::dup(fds[1]);
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    auto spawned = ChildProcess::Spawn(MakeLaunch(0, {ProbePath(), "descriptors"}));
    const std::string text = spawned.ok() ? ReadToEnd(spawned->pipes.out.get()) : spawned.status().message();
    [[maybe_unused]] const ssize_t written = ::write(result, text.data(), text.size());
    ::_exit(0);
  }
  ::close(fds[1]);
  EXPECT_EQ(ReadToEnd(fds[0]), "0 1 2 3 4 ");
  ::close(fds[0]);
  ::waitpid(pid, nullptr, 0);
}

TEST(ChildProcessTest, ReadsNothingUnlessItIsGivenADescriptor) {
  EXPECT_EQ(OutputOf(MakeLaunch(0, {"cat"})), "");
  const TempFolder folder;
  WriteAll(folder / "input", "its input");
  const UniqueFd input(::open((folder / "input").c_str(), O_RDONLY | O_CLOEXEC));
  Launch launch = MakeLaunch(0, {"cat"});
  launch.input = input.get();
  EXPECT_EQ(OutputOf(launch), "its input");
  launch.input = 999;
  const auto spawned = ChildProcess::Spawn(launch);
  EXPECT_EQ(SpawnFailureOf(spawned.status()), SpawnFailure::kResources) << spawned.status().ToString();
}

TEST(ChildProcessTest, GetsExactlyTheGivenEnvironment) {
  Launch launch = MakeLaunch(0, {"env"});
  launch.environment = {
      {"PATH", "/usr/bin:/bin"}, {"RANK", "3"}, {"LOCKSTEP_EVENTS_FD", "77"}, {"LOCKSTEP_CONTROL_FD", "78"}};
  EXPECT_EQ(OutputOf(launch), "PATH=/usr/bin:/bin\nRANK=3\nLOCKSTEP_EVENTS_FD=3\nLOCKSTEP_CONTROL_FD=4\n");
}

TEST(ChildProcessTest, StartsWithDefaultSignalsInAGroupOfItsOwnAndDiesWithItsParent) {
  sigset_t blocked, old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &old);
  const auto old_handler = ::signal(SIGPIPE, SIG_IGN);
  const std::string text = OutputOf(MakeLaunch(0, {ProbePath(), "status"}));
  ::signal(SIGPIPE, old_handler);
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  EXPECT_NE(text.find("SigBlk:\t0000000000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("SigIgn:\t0000000000000000"), std::string::npos) << text;
  EXPECT_NE(text.find("death signal 9"), std::string::npos) << text;
  EXPECT_NE(text.find("stdin is null 1"), std::string::npos) << text;
  EXPECT_NE(text.find("leads its group 1"), std::string::npos) << text;
}

TEST(ChildProcessTest, LeavesTheLaunchersOwnSignalMaskAsItWas) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  auto child = SpawnIt(MakeLaunch(0, {"true"}));
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal)
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}

TEST(ChildProcessTest, IsPinnedToTheGivenCpus) {
  Launch launch = MakeLaunch(0, {ProbePath(), "status"});
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) last = cpu;
  }
  launch.cpus = {last};
  EXPECT_NE(OutputOf(launch).find("Cpus_allowed_list:\t" + std::to_string(last) + "\n"), std::string::npos);

  launch.cpus = {CPU_SETSIZE - 1};
  const Status status = ChildProcess::Spawn(launch).status();
  EXPECT_EQ(SpawnFailureOf(status), SpawnFailure::kCannotExecute);
  EXPECT_NE(status.message().find("CPU affinity"), std::string::npos) << status.message();
}

TEST(ChildProcessTest, GetsBackTheLimitOfOpenFiles) {
  Launch launch = Shell(0, "ulimit -n");
  launch.open_files = 123;
  EXPECT_EQ(OutputOf(launch), "123\n");
}

TEST(ChildProcessTest, RunsInTheWorkingDirectory) {
  TempFolder folder;
  WriteAll(folder / "here.sh", "#!/bin/sh\npwd\n", 0755);
  Launch launch = MakeLaunch(0, {"./here.sh"});
  launch.working_directory = folder.path();
  EXPECT_EQ(OutputOf(launch), folder.path() + "\n");
}

TEST(ChildProcessTest, WritesEventsIntoTheInheritedPipe) {
  auto child = SpawnIt(Shell(0, "echo hello >&$LOCKSTEP_EVENTS_FD; echo out; echo err >&2"));
  EXPECT_EQ(ReadToEnd(child.pipes.events.get()), "hello\n");
  EXPECT_EQ(ReadToEnd(child.pipes.out.get()), "out\n");
  EXPECT_EQ(ReadToEnd(child.pipes.err.get()), "err\n");
  EXPECT_EQ(WaitFor(child.process).exit_code, 0);
}

TEST(ChildProcessTest, TellsHowItEnded) {
  auto exits = SpawnIt(Shell(0, "exit 7"));
  const ExitStatus exited = WaitFor(exits.process);
  EXPECT_EQ(exited.exit_code, 7);
  EXPECT_EQ(exited.signal, 0);
  EXPECT_GT(exited.max_rss_bytes, 0);

  auto killed = SpawnIt(MakeLaunch(0, {"sleep", "1000"}));
  killed.process.Signal(SIGTERM);
  const ExitStatus signalled = WaitFor(killed.process);
  EXPECT_EQ(signalled.exit_code, 128 + SIGTERM);
  EXPECT_EQ(signalled.signal, SIGTERM);
}

TEST(ChildProcessTest, IsKilledWithItsGroupWhenItsOwnerGoes) {
  TempFolder folder;
  LifeLine life(folder / "life");
  {
    auto child = SpawnIt(Shell(0, ProbePath() + " ignore-term " + life.path() + " & wait"));
    ASSERT_EQ(life.WaitFor(1).size(), 1u);
  }
  EXPECT_TRUE(life.WaitForEnd());
}

TEST(ChildProcessTest, MovesLeaveOneOwner) {
  auto first = SpawnIt(MakeLaunch(0, {"sleep", "1000"}));
  const pid_t pid = first.process.pid();
  ChildProcess second = std::move(first.process);
  EXPECT_EQ(first.process.pid(), 0);
  EXPECT_EQ(second.pid(), pid);
  ChildProcess& alias = second;
  second = std::move(alias);
  EXPECT_EQ(second.pid(), pid);
  EXPECT_FALSE(second.Peek().has_value());

  auto third = SpawnIt(MakeLaunch(0, {"sleep", "1000"}));
  second = std::move(third.process);  // overwritten: the first is killed and waited for
  EXPECT_FALSE(Exists(pid));
}

struct FailureCase {
  const char* name;
  std::vector<std::string> command;
  SpawnFailure failure;
  std::string message;  // a part of it
};

TEST(ChildProcessTest, SaysExactlyWhyAProgramCantBeExecuted) {
  TempFolder folder;
  WriteAll(folder / "plain.txt", "echo hello\n", 0644);
  WriteAll(folder / "no_interpreter", "#!/usr/bin/python9.9 -u\nprint(1)\n", 0755);
  WriteAll(folder / "dos", "#!/bin/sh\r\necho\r\n", 0755);
  WriteAll(folder / "no_hashbang", "echo hello\n", 0755);
  const std::vector<FailureCase> cases = {
      {"absent name",
       {"no-such-program"},
       SpawnFailure::kNotFound,
       "no-such-program: command not found in PATH"},
      {"absent path", {"/no/such/program"}, SpawnFailure::kNotFound, "/no/such/program: no such file"},
      {"not executable", {folder / "plain.txt"}, SpawnFailure::kCannotExecute, "plain.txt: not executable"},
      {"folder", {folder.path()}, SpawnFailure::kCannotExecute, "is a directory"},
      {"interpreter",
       {folder / "no_interpreter"},
       SpawnFailure::kCannotExecute,
       "no_interpreter: bad interpreter: /usr/bin/python9.9 (in its first line) does not exist"},
      {"dos line ends", {folder / "dos"}, SpawnFailure::kCannotExecute, "DOS line ends"},
      {"format",
       {folder / "no_hashbang"},
       SpawnFailure::kCannotExecute,
       "neither a program for this machine nor"},
      {"nothing", {}, SpawnFailure::kCannotExecute, "no command"},
  };
  SweepDescendants(kDeadline);  // another test may have made this process one that orphans fall to
  const size_t descriptors = OpenDescriptors();
  for (const FailureCase& test : cases) {
    const auto spawned = ChildProcess::Spawn(MakeLaunch(0, test.command));
    ASSERT_FALSE(spawned.ok()) << test.name;
    EXPECT_EQ(SpawnFailureOf(spawned.status()), test.failure)
        << test.name << ": " << spawned.status().ToString();
    EXPECT_NE(spawned.status().message().find(test.message), std::string::npos) << spawned.status().message();
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a zombie is left";
}

TEST(ChildProcessTest, NamesAWorkingDirectoryThatIsNotThere) {
  Launch launch = MakeLaunch(0, {"true"});
  launch.working_directory = "/no/such/folder";
  const Status status = ChildProcess::Spawn(launch).status();
  EXPECT_EQ(SpawnFailureOf(status), SpawnFailure::kCannotExecute);
  EXPECT_NE(status.message().find("working directory /no/such/folder"), std::string::npos)
      << status.message();
}

TEST(ChildProcessTest, LooksPastWhatIsNotExecutableInThePath) {
  TempFolder folder;
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_directory(folder / "b");
  WriteAll(folder / "a/tool", "#!/bin/sh\necho a\n", 0644);
  WriteAll(folder / "b/tool", "#!/bin/sh\necho b\n", 0755);
  Launch launch = MakeLaunch(0, {"tool"});
  launch.environment = {{"PATH", folder / "a" + ":" + folder / "b"}};
  EXPECT_EQ(OutputOf(launch), "b\n");
  std::filesystem::remove(folder / "b/tool");
  EXPECT_EQ(SpawnFailureOf(ChildProcess::Spawn(launch).status()), SpawnFailure::kCannotExecute);
}

}  // namespace
}  // namespace lockstep::process
