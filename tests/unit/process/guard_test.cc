#include "launcher/process/guard.h"

#include <stdlib.h>
#include <termios.h>

#include "launcher/process/descendants.h"
#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

// Starts `process_probe guarded` with a process group of its own, as a shell would.
class GuardTest : public testing::Test {
 protected:
  GuardTest() { BecomeSubreaper(); }  // what the guard leaves behind falls to the test, which can then see it
  ~GuardTest() override { SweepDescendants(std::chrono::seconds(10)); }

  // `ignored` is a signal that is ignored from the start, as `nohup` has it.
  void StartGuarded(const std::string& mode, int ignored = 0) {
    int in[2], err[2];
    ASSERT_EQ(::pipe2(in, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(err, O_CLOEXEC), 0);
    const std::string probe = ProbePath();
    guard = ::fork();
    if (guard == 0) {
      ::setpgid(0, 0);
      ::dup2(in[0], 0);
      ::dup2(err[1], 2);
      if (ignored != 0) ::signal(ignored, SIG_IGN);
      ::execl(probe.c_str(), probe.c_str(), "guarded", life.path().c_str(), mode.c_str(), nullptr);
      ::_exit(99);
    }
    ::close(in[0]);
    ::close(err[1]);
    input.reset(in[1]);
    errors.reset(err[0]);
  }

  // The launcher, two ranks and two orphans: 5 processes; the first pid is the launcher's.
  void StartFamily(const std::string& mode = "run") {
    StartGuarded(mode);
    pids = life.WaitFor(5);
    ASSERT_EQ(pids.size(), 5u);
    launcher = pids.front();
  }

  // Its exit code as a shell has it; -1 when it doesn't end.
  int WaitForGuard() {
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, guard, 0)));
    if (!WaitReadable(pidfd.get())) return -1;
    int status = 0;
    EXPECT_EQ(::waitpid(guard, &status, 0), guard);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  void ExpectNothingIsLeft() {
    ASSERT_TRUE(life.WaitForEnd(std::chrono::seconds(5)));
    for (const pid_t pid : pids) {
      // They may be zombies that fell to the test: they have closed everything, so they end in an instant.
      ::waitpid(pid, nullptr, 0);
      EXPECT_FALSE(Exists(pid)) << pid;
    }
  }

  TempFolder folder;
  LifeLine life{folder / "life"};
  UniqueFd input, errors;
  pid_t guard = 0;
  pid_t launcher = 0;
  std::vector<pid_t> pids;
};

TEST_F(GuardTest, EndsWithTheLaunchersCode) {
  StartGuarded("return");
  EXPECT_EQ(WaitForGuard(), 42);
  EXPECT_EQ(ReadToEnd(errors.get()), "");
}

TEST_F(GuardTest, SaysInOneLineThatTheLauncherCrashed) {
  StartGuarded("abort");
  EXPECT_EQ(WaitForGuard(), 128 + SIGABRT);
  const std::string text = ReadToEnd(errors.get());
  EXPECT_NE(text.find("was killed by signal 6 (SIGABRT"), std::string::npos) << text;
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(GuardTest, WorksWhereSigchldWasIgnoredFromTheStart) {
  StartGuarded("return", SIGCHLD);
  EXPECT_EQ(WaitForGuard(), 42);
}

TEST_F(GuardTest, NothingSurvivesAKilledGuard) {
  StartFamily();
  ASSERT_EQ(::kill(guard, SIGKILL), 0);
  EXPECT_EQ(WaitForGuard(), 128 + SIGKILL);
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, NothingSurvivesAKilledLauncher) {
  StartFamily();
  ASSERT_EQ(::kill(launcher, SIGKILL), 0);
  EXPECT_EQ(WaitForGuard(), 128 + SIGKILL);
  const std::string text = ReadToEnd(errors.get());
  EXPECT_NE(text.find("was killed by signal 9 (SIGKILL"), std::string::npos) << text;
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, NothingSurvivesAKilledProcessGroup) {
  StartFamily();
  ASSERT_EQ(::kill(-guard, SIGKILL), 0);
  EXPECT_EQ(WaitForGuard(), 128 + SIGKILL);
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, NothingSurvivesALauncherThatForgotItsRanks) {
  StartFamily("leave");
  input.reset();
  EXPECT_EQ(WaitForGuard(), 3);
  ExpectNothingIsLeft();
}

class GuardSignalTest : public GuardTest, public testing::WithParamInterface<int> {};

TEST_P(GuardSignalTest, IsPassedOn) {
  StartFamily();
  ASSERT_EQ(::kill(guard, GetParam()), 0);
  EXPECT_EQ(WaitForGuard(), 128 + GetParam());
  EXPECT_EQ(ReadToEnd(errors.get()), "");
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Signals, GuardSignalTest, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_F(GuardTest, AThirdInterruptEndsALauncherThatHangs) {
  StartGuarded("hang");
  pids = life.WaitFor(1);
  ASSERT_EQ(pids.size(), 1u);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, guard, 0)));
  // Signals of one kind that are pending together become one, so more are sent until it has counted three.
  for (int i = 0; i < 3000 && !WaitReadable(pidfd.get(), std::chrono::milliseconds(10)); ++i)
    ::kill(guard, SIGINT);
  EXPECT_EQ(WaitForGuard(), 128 + SIGKILL);
  EXPECT_NE(ReadToEnd(errors.get()).find("interrupted repeatedly"), std::string::npos);
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, AHangupThatWasIgnoredStaysIgnored) {
  StartGuarded("run", SIGHUP);
  pids = life.WaitFor(5);
  ASSERT_EQ(pids.size(), 5u);
  ::kill(guard, SIGHUP);
  ::kill(guard, SIGTERM);
  EXPECT_EQ(WaitForGuard(), 128 + SIGTERM);
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, TheLauncherHasAProcessGroupOfItsOwn) {
  StartFamily();
  EXPECT_EQ(::getpgid(guard), guard);
  EXPECT_EQ(::getpgid(launcher), launcher);
  ::kill(guard, SIGTERM);
  EXPECT_EQ(WaitForGuard(), 128 + SIGTERM);
}

TEST_F(GuardTest, TheLauncherMayWriteToTheTerminalButNotReadItAndCtrlCReachesIt) {
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::grantpt(master.get()), 0);
  ASSERT_EQ(::unlockpt(master.get()), 0);
  const std::string terminal = ::ptsname(master.get());
  const std::string probe = ProbePath();
  guard = ::fork();
  if (guard == 0) {
    ::setsid();
    const int fd = ::open(terminal.c_str(), O_RDWR);  // becomes the controlling terminal
    termios mode;
    ::tcgetattr(fd, &mode);
    mode.c_lflag |= TOSTOP;
    ::tcsetattr(fd, TCSANOW, &mode);
    for (const int standard : {0, 1, 2}) ::dup2(fd, standard);
    ::execl(probe.c_str(), probe.c_str(), "guarded", life.path().c_str(), "terminal", nullptr);
    ::_exit(99);
  }
  pids = life.WaitFor(5);
  ASSERT_EQ(pids.size(), 5u);
  ASSERT_TRUE(WaitReadable(master.get()));
  std::array<char, 4096> buffer;
  const ssize_t size = ::read(master.get(), buffer.data(), buffer.size());
  EXPECT_EQ(std::string(buffer.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))),
            "read from the terminal: Input/output error\r\n");

  ASSERT_EQ(::write(master.get(), "\x03", 1), 1);
  EXPECT_EQ(WaitForGuard(), 128 + SIGINT);
  ExpectNothingIsLeft();
}

TEST_F(GuardTest, AddsFewMillisecondsToEightProcesses) {
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    const auto start = std::chrono::steady_clock::now();
    StartGuarded("eight");
    EXPECT_EQ(WaitForGuard(), 0);
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    input.reset();
  }
  std::sort(times.begin(), times.end());
  std::printf("guarded launcher of 8 x true, start to exit: median %.2f ms, least %.2f ms\n", times[5],
              times[0]);
  EXPECT_LT(times.front(), 1000);
}

TEST(DescendantsTest, FindsThemAtAnyDepthAndNoZombies) {
  BecomeSubreaper();
  TempFolder folder;
  LifeLine life(folder / "life");
  const std::string probe = ProbePath();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(probe.c_str(), probe.c_str(), "family", life.path().c_str(), nullptr);
    ::_exit(99);
  }
  std::vector<pid_t> expected = life.WaitFor(2);
  ASSERT_EQ(expected.size(), 2u);
  std::vector<pid_t> found = Descendants(::getpid());
  for (const pid_t pid : expected) EXPECT_NE(std::find(found.begin(), found.end(), pid), found.end());

  ::kill(child, SIGKILL);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  found = Descendants(::getpid());
  EXPECT_EQ(std::find(found.begin(), found.end(), child), found.end());
  EXPECT_TRUE(SweepDescendants(kDeadline));
  EXPECT_TRUE(life.WaitForEnd());
  EXPECT_TRUE(Descendants(::getpid()).empty());
}

TEST(DescendantsTest, CatchesProcessesThatKeepForking) {
  BecomeSubreaper();
  TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", "while :; do (sleep 1000 &) ; done", nullptr);
    ::_exit(99);
  }
  while (Descendants(::getpid()).size() < 10) {
  }
  EXPECT_TRUE(SweepDescendants(kDeadline));
  EXPECT_TRUE(Descendants(::getpid()).empty());
}

}  // namespace
}  // namespace lockstep::process
