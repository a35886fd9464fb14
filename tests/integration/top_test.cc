#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "common/unique_fd.h"
#include "tests/paths.h"
#include "tests/support/launcher_process.h"

// `lockstep top` of a job that runs, on a terminal and elsewhere.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// `lockstep ARGUMENTS` on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments) {
    int master = -1;
    winsize size{.ws_row = 24, .ws_col = 80};
    pid_ = ::forkpty(&master, nullptr, nullptr, &size);
    std::string program = LOCKSTEP_BIN_DIR "/lockstep";
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      std::vector<char*> argv = {program.data()};
      for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    terminal_ = UniqueFd(master);
  }
  ~OnTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void Type(char key) const { EXPECT_EQ(::write(terminal_.get(), &key, 1), 1); }

  // Reads until `text` was drawn, after what was asked for before; false when it was not in time.
  bool Shows(const std::string& text) {
    const Deadline deadline = InTime();
    size_t found = 0;
    while ((found = drawn_.find(text)) == std::string::npos) {
      if (!Read(deadline)) return false;
    }
    drawn_.erase(0, found + text.size());
    return true;
  }

  // The exit code, once it ends by itself.
  int Wait() {
    const Deadline deadline = InTime();
    while (Read(deadline)) {
    }
    int status = 0;
    if (!WaitUntil([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, deadline)) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool Read(Deadline deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = terminal_.get(), .events = POLLIN};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return false;
    char bytes[4096];
    const ssize_t size = ::read(terminal_.get(), bytes, sizeof bytes);
    if (size <= 0) return false;  // (EIO: the program has ended)
    drawn_.append(bytes, static_cast<size_t>(size));
    return true;
  }

  pid_t pid_ = -1;
  UniqueFd terminal_;
  std::string drawn_;
};

TEST(TopTest, ShowsTheRanksOfAJobUntilItIsToldToQuit) {
  JobRun job(ShellSpec(3, "exec sleep 1000"));
  ASSERT_EQ(job.Pids().size(), 3u);
  const std::string url = "http://" + ReadText(job.File("http-address"));
  OnTerminal top({"top", url.substr(0, url.find('\n'))});
  EXPECT_TRUE(top.Shows("test in default: Running"));
  EXPECT_TRUE(top.Shows("worker-0"));
  top.Type('o');
  EXPECT_TRUE(top.Shows("slowest first"));
  job.launcher().Signal(SIGTERM);
  job.Wait();
  EXPECT_TRUE(top.Shows("nobody answers"));
  top.Type('q');
  EXPECT_EQ(top.Wait(), 0);
}

TEST(TopTest, WhereThereIsNoTerminalItPrintsTheRanksOnce) {
  const TemporaryFolder state;
  const std::vector<std::pair<std::string, std::string>> environment = {
      {"XDG_STATE_HOME", state.path().string()}};
  const std::string manifest = state.Write("job.yaml", R"(apiVersion: lockstep.dev/v1alpha1
kind: TrainingJob
metadata: {name: found-by-name}
spec:
  processesPerReplica: 2
  devices: {type: CPU}
  program: {command: [sleep, '1000']}
)");
  LauncherProcess job({.arguments = {"run", manifest}, .environment = environment});
  std::string out;
  EXPECT_TRUE(WaitUntil([&] {
    LauncherProcess top({.arguments = {"top", "found-by-name"}, .environment = environment});
    top.Wait();
    out = top.out();
    return out.find("\n1 ") != std::string::npos;
  })) << out;
  EXPECT_THAT(out, HasSubstr("found-by-name in default: Running"));

  LauncherProcess other({.arguments = {"top", "another"}, .environment = environment});
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_THAT(other.err(), HasSubstr("no job \"another\" runs on this machine now"));
}

}  // namespace
}  // namespace lockstep::testing
