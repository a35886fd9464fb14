#include "launcher/job/rank_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "launcher/process/child_process.h"
#include "launcher/process/descendants.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::job {
namespace {

using lockstep::testing::ReadText;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr auto kDeadline = std::chrono::seconds(30);

TEST(InnermostTest, IsTheFirstThreadsInTheWordsOfGdbAndOfPySpy) {
  EXPECT_THAT(
      InnermostOf(
          "[New LWP 12]\n0x00 in poll () from libc\n\nThread 1 (LWP 11 \"sh\"):\n#0  poll ()\n#1  main ()\n\n"
          "Thread 2 (LWP 12):\n#0  recv ()\n"),
      ElementsAre("Thread 1 (LWP 11 \"sh\"):", "#0  poll ()", "#1  main ()"));
  EXPECT_THAT(
      InnermostOf(
          "Process 11: python3 train.py\nPython v3.11.2\n\nThread 11 (idle): \"MainThread\"\n"
          "    recv (socket.py:3)\n    <module> (train.py:9)\nThread 12 (idle): \"x\"\n    run (t.py:1)\n"),
      ElementsAre("Thread 11 (idle): \"MainThread\"", "    recv (socket.py:3)", "    <module> (train.py:9)"));
  std::string deep = "Thread 1:\n";
  for (int i = 0; i < 100; ++i) deep += "#" + std::to_string(i) + "\n";
  EXPECT_THAT(InnermostOf(deep), SizeIs(9));
  EXPECT_THAT(InnermostOf("ptrace: Operation not permitted.\n"), SizeIs(0));
}

// With a process to look at, and tools that say what the test wants.
class RankStacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.path() / "bin");
    std::filesystem::create_directory(folder_.path() / "run");
  }
  void MakeTool(const std::string& name, const std::string& script) const {
    ::chmod(folder_.Write("bin/" + name, "#!/bin/sh\n" + script).c_str(), 0700);
  }
  // What runs is called so.
  process::ChildProcess Program(const std::string& name) const {
    const std::string path = folder_.File(name);
    std::filesystem::copy_file("/bin/sleep", path);
    auto spawned = process::ChildProcess::Spawn({.command = {path, "1000"}});
    EXPECT_TRUE(spawned.ok()) << spawned.status().message();
    return spawned.ok() ? std::move(spawned->process) : process::ChildProcess();
  }
  RankStack Collect(const std::string& program, std::chrono::milliseconds limit = kDeadline) {
    return Collect(Program(program), limit);
  }
  RankStack Collect(const process::ChildProcess& process, std::chrono::milliseconds limit = kDeadline) {
    RankStacks stacks(
        *loop_,
        {.folder = folder_.File("run"), .environment = {{"PATH", folder_.File("bin")}}, .limit = limit});
    std::optional<std::map<pid_t, RankStack>> found;
    stacks.Collect({{3, process.pid()}}, "no step for 9 s",
                   [&](std::map<pid_t, RankStack> all) { found = std::move(all); });
    const auto deadline = std::chrono::steady_clock::now() + 2 * kDeadline;
    while (!found && std::chrono::steady_clock::now() < deadline)
      loop_->RunOnce(std::chrono::milliseconds(50));
    EXPECT_TRUE(found.has_value() && found->contains(process.pid()));
    pid_ = process.pid();
    return found ? (*found)[process.pid()] : RankStack();
  }
  std::string Kept() const { return ReadText(folder_.File("run/stack-rank-3.txt")); }

  const TemporaryFolder folder_;
  std::unique_ptr<EventLoop> loop_ = std::move(EventLoop::Create()).value();
  pid_t pid_ = 0;
};

TEST_F(RankStacksTest, AreWhatGdbSaysOfAProgram) {
  MakeTool("gdb", "echo \"Thread 1:\"; echo \"#0 $*\"; echo; echo \"Thread 2:\"; echo \"#0 other\"");
  MakeTool("py-spy", "echo 'Thread 1: python'");
  const RankStack stack = Collect("train");
  EXPECT_THAT(stack.lines, ElementsAre("Thread 1:", "#0 -nx -batch -p " + std::to_string(pid_) +
                                                        " -ex thread apply all -ascending bt 64"));
  EXPECT_EQ(stack.file, folder_.File("run/stack-rank-3.txt"));
  EXPECT_THAT(Kept(), StartsWith("rank 3, pid " + std::to_string(pid_) + ": no step for 9 s\n\nthread "));
  EXPECT_THAT(Kept(), HasSubstr("\ngdb:\nThread 1:\n"));
  EXPECT_THAT(Kept(), HasSubstr("\nThread 2:\n#0 other\n"));
  struct stat facts {};
  ASSERT_EQ(::stat(stack.file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(RankStacksTest, AreWhatPySpySaysOfPython) {
  MakeTool("gdb", "echo 'Thread 1: C'");
  MakeTool("py-spy", "echo \"Thread 1: $*\"");
  const RankStack stack = Collect("python3.11");
  EXPECT_THAT(stack.lines, ElementsAre("Thread 1: dump --pid " + std::to_string(pid_)));
  EXPECT_THAT(Kept(), Not(HasSubstr("gdb")));
}

// As `uv run` and scripts start it.
TEST_F(RankStacksTest, AreThoseOfThePythonBelowAWrapper) {
  MakeTool("py-spy", "echo \"Thread 1: $*\"");
  const std::string path = folder_.File("python3");
  std::filesystem::copy_file("/bin/sleep", path);
  auto wrapper = process::ChildProcess::Spawn(
      {.command = {"/bin/sh", "-c", "/bin/sleep 1000 & " + path + " 1000 & wait; wait"}});
  ASSERT_TRUE(wrapper.ok()) << wrapper.status().message();
  const auto python = [&] {
    for (const pid_t pid : process::Descendants(wrapper->process.pid())) {
      std::error_code error;
      const auto program = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error);
      if (program.filename() == "python3") return std::to_string(pid);
    }
    return std::string();
  };
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (python().empty() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_THAT(Collect(wrapper->process).lines, ElementsAre("Thread 1: dump --pid " + python()));
  EXPECT_THAT(Kept(), HasSubstr("\nbelow it, pid " + python() + ":\nthread " + python() + " (python3): "));
}

TEST_F(RankStacksTest, AreGdbsWherePySpyMayNotLook) {
  MakeTool("gdb", "echo 'Thread 1: C'");
  MakeTool("py-spy", "echo 'Permission denied' >&2; exit 1");
  EXPECT_THAT(Collect("python3").lines, ElementsAre("Thread 1: C"));
  EXPECT_THAT(Kept(), HasSubstr("py-spy:\nPermission denied\n"));
}

TEST_F(RankStacksTest, SayWhyThereAreNoneAndWhatIsKnownAllTheSame) {
  MakeTool("gdb", "echo 'ptrace: Operation not permitted.'; echo");
  EXPECT_THAT(Collect("train").lines,
              ElementsAre(StartsWith("thread "), "gdb cannot say: ptrace: Operation not permitted."));
}

TEST_F(RankStacksTest, DoNotWaitForAToolForEver) {
  MakeTool("gdb", "echo begin; exec /bin/sleep 1000");
  EXPECT_THAT(Collect("train", std::chrono::seconds(1)).lines,
              ElementsAre(StartsWith("thread "), "gdb cannot say: it took longer than 1 s"));
  EXPECT_THAT(Kept(), HasSubstr("gdb, killed before its end:\nbegin\n"));
}

TEST_F(RankStacksTest, SayWhatToInstallWhereNobodyCanLook) {
  EXPECT_THAT(Collect("train").lines, ElementsAre(StartsWith("thread "), "install gdb for its stack"));
  EXPECT_THAT(Kept(), HasSubstr("(train): "));
}

TEST_F(RankStacksTest, OfPythonWithoutPySpyAreThoseOfItsInterpreter) {
  MakeTool("gdb", "echo 'Thread 1: C'");
  EXPECT_THAT(Collect("python3").lines,
              ElementsAre("Thread 1: C", "install py-spy for its stack in lines of Python"));
}

TEST_F(RankStacksTest, AreBounded) {
  MakeTool("gdb", "echo 'Thread 1:'; echo '#0'; echo; exec /usr/bin/head -c 1000000 /dev/zero");
  EXPECT_THAT(Collect("train").lines, SizeIs(2));
  EXPECT_LT(Kept().size(), RankStacks::kMostBytes + 1000);
}

}  // namespace
}  // namespace lockstep::job
