#include "launcher/process/oom_counter.h"

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

// A file tree as a cgroup mount shows it, and the mountinfo line for it.
struct FakeCgroups {
  TempFolder folder;
  std::string Mountinfo(const std::string& type, const std::string& options,
                        const std::string& root = "/") const {
    return "22 1 0:20 / /proc rw - proc proc rw\n35 31 0:32 " + root + " " + folder.path() +
           " rw,nosuid shared:9 - " + type + " cgroup rw," + options + "\n";
  }
  void Add(const std::string& cgroup, const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(folder.path() + cgroup);
    WriteAll(folder.path() + cgroup + "/" + file, text);
  }
};

TEST(OomCounterTest, FindsTheCounterOfVersion1) {
  FakeCgroups fake;
  fake.Add("/job", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(
      OomCounter::CounterFile("5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n", fake.Mountinfo("cgroup", "memory")),
      fake.folder / "job/memory.oom_control");
}

TEST(OomCounterTest, FindsTheCounterOfVersion2) {
  FakeCgroups fake;
  fake.Add("/job", "memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n");
  EXPECT_EQ(OomCounter::CounterFile("0::/job\n", fake.Mountinfo("cgroup2", "nsdelegate")),
            fake.folder / "job/memory.events");
}

TEST(OomCounterTest, FindsTheMountPointWhereThePathIsTheMachines) {
  FakeCgroups fake;
  fake.Add("", "memory.oom_control", "oom_kill 0\n");
  EXPECT_EQ(
      OomCounter::CounterFile("4:memory:/docker/abc\n", fake.Mountinfo("cgroup", "memory", "/docker/abc")),
      fake.folder / "memory.oom_control");
  EXPECT_EQ(OomCounter::CounterFile("4:memory:/elsewhere/x\n", fake.Mountinfo("cgroup", "memory")),
            fake.folder / "memory.oom_control");
}

TEST(OomCounterTest, FallsBackToTheWholeMachine) {
  FakeCgroups fake;
  EXPECT_EQ(OomCounter::CounterFile("0::/\n", fake.Mountinfo("cgroup2", "nsdelegate")), "/proc/vmstat");
  EXPECT_EQ(OomCounter::CounterFile("", ""), "/proc/vmstat");
  EXPECT_EQ(OomCounter::CounterFile("nonsense", "more nonsense - \n"), "/proc/vmstat");
}

TEST(OomCounterTest, TellsNoKillWhereThereWasNone) {
  OomCounter counter;
  counter.Reset();
  EXPECT_FALSE(counter.TakeKill(::getpid()));
}

TEST(OomCounterTest, ARealKillIsToldApartFromSigkill) {
  const std::string own = ReadAll("/proc/self/cgroup");
  const size_t start = own.find(":memory:");
  if (start == std::string::npos) GTEST_SKIP() << "needs a memory cgroup of version 1";
  const std::string path = own.substr(start + 8, own.find('\n', start) - start - 8);
  std::string cgroup = "/sys/fs/cgroup/memory" + path + "/lockstep-test-" + std::to_string(::getpid());
  if (::mkdir(cgroup.c_str(), 0755) != 0) GTEST_SKIP() << "may not make a memory cgroup";
  WriteAll(cgroup + "/memory.limit_in_bytes", "67108864");

  int out[2];
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const std::string probe = ProbePath();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], 1);
    ::execl(probe.c_str(), probe.c_str(), "launcher-in-cgroup", cgroup.c_str(), nullptr);
    ::_exit(99);
  }
  ::close(out[1]);
  EXPECT_EQ(ReadToEnd(out[0]), "OOMKilled 9 1\n");
  ::close(out[0]);
  ::waitpid(pid, nullptr, 0);
  ::rmdir(cgroup.c_str());
}

}  // namespace
}  // namespace lockstep::process
