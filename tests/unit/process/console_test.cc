#include "launcher/process/console.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

#include "tests/unit/process/test_util.h"

namespace lockstep::process {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(::pipe2(fds, O_CLOEXEC), 0);
    read.reset(fds[0]);
    write.reset(fds[1]);
    ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
  }
  UniqueFd read, write;
};

// A terminal of 40 columns that changes nothing of what is written to it.
struct Terminal {
  Terminal() {
    master.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    EXPECT_EQ(::grantpt(master.get()), 0);
    EXPECT_EQ(::unlockpt(master.get()), 0);
    slave.reset(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios mode;
    ::tcgetattr(slave.get(), &mode);
    ::cfmakeraw(&mode);
    ::tcsetattr(slave.get(), TCSANOW, &mode);
    const winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(slave.get(), TIOCSWINSZ, &size);
  }
  UniqueFd master, slave;
};

class ConsoleTest : public testing::Test {
 protected:
  ConsoleTest() {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
  }
  std::unique_ptr<Console> Make(int out, int err) {
    return Console::Create(
        *loop, {.out_fd = out, .err_fd = err, .buffer_bytes = 100'000, .stall_limit = milliseconds(100)});
  }
  // Runs the loop until `text` has been read from `fd`, or until the deadline; all that was read.
  std::string ReadUntil(int fd, const std::string& text) {
    std::string read;
    RunUntil(*loop, [&] {
      std::array<char, 65536> buffer;
      ssize_t size;
      while ((size = ::read(fd, buffer.data(), buffer.size())) > 0)
        read.append(buffer.data(), static_cast<size_t>(size));
      return read.find(text) != std::string::npos;
    });
    return read;
  }

  std::unique_ptr<EventLoop> loop = std::move(EventLoop::Create()).value();
};

TEST_F(ConsoleTest, WritesEachStreamToItsOwn) {
  Pipe out, err;
  auto console = Make(out.write.get(), err.write.get());
  console->Write(OutputStream::kStdout, "to out\n");
  console->Write(OutputStream::kStderr, "to err\n");
  console->SetStatusLine("never shown on a pipe");
  EXPECT_FALSE(console->has_status_line());
  EXPECT_EQ(ReadUntil(out.read.get(), "\n"), "to out\n");
  EXPECT_EQ(ReadUntil(err.read.get(), "\n"), "to err\n");
}

TEST_F(ConsoleTest, KeepsTheOrderOfBothStreamsOnOnePipe) {
  Pipe both;
  auto console = Make(both.write.get(), both.write.get());
  console->Write(OutputStream::kStdout, "1\n");
  console->Write(OutputStream::kStderr, "2\n");
  console->Write(OutputStream::kStdout, "3\n");
  EXPECT_EQ(ReadUntil(both.read.get(), "3\n"), "1\n2\n3\n");
}

TEST_F(ConsoleTest, LeavesTheFlagsOfSharedDescriptorsAlone) {
  Pipe out;
  auto console = Make(out.write.get(), out.write.get());
  console->Write(OutputStream::kStdout, "x\n");
  ReadUntil(out.read.get(), "x\n");
  EXPECT_EQ(::fcntl(out.write.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(ConsoleTest, AsksForAPauseAndLosesNothingWhileTheReaderIsSlow) {
  Pipe out;
  auto console = Make(out.write.get(), out.write.get());
  std::vector<bool> congestion;
  console->SetCongestionCallback([&](bool congested) { congestion.push_back(congested); });
  std::string sent;
  for (int i = 0; congestion.empty(); ++i) {
    const std::string line = "line " + std::to_string(i) + std::string(90, '.') + "\n";
    console->Write(OutputStream::kStdout, line);
    sent += line;
  }
  console->Write(OutputStream::kStdout, "end\n");
  EXPECT_EQ(ReadUntil(out.read.get(), "end\n"), sent + "end\n");
  EXPECT_TRUE(RunUntil(*loop, [&] { return congestion.size() == 2; }));
  EXPECT_EQ(congestion, (std::vector<bool>{true, false}));
}

TEST_F(ConsoleTest, LeavesLinesOutWhenNobodyReadsAndSaysHowMany) {
  Pipe out;
  auto console = Make(out.write.get(), out.write.get());
  bool congested = false;
  console->SetCongestionCallback([&](bool now) { congested = now; });
  while (!congested) console->Write(OutputStream::kStdout, std::string(99, 'x') + "\n");
  EXPECT_TRUE(RunUntil(*loop, [&] { return !congested; })) << "the pause must end though nobody reads";
  console->Write(OutputStream::kStdout, "left out 1\nleft out 2\n");
  console->Write(OutputStream::kStdout, "left out 3\n");
  const std::string text = ReadUntil(out.read.get(), "log files\n");
  EXPECT_NE(text.find("lockstep: 3 lines are not shown here"), std::string::npos);
  EXPECT_EQ(text.find("left out 1"), std::string::npos);
  console->Write(OutputStream::kStdout, "shown again\n");
  EXPECT_EQ(ReadUntil(out.read.get(), "again\n"), "shown again\n");
}

TEST_F(ConsoleTest, SurvivesAReaderThatIsGone) {
  Pipe out;
  auto console = Make(out.write.get(), out.write.get());
  out.read.reset();
  for (int i = 0; i < 100; ++i) {
    console->Write(OutputStream::kStdout, std::string(10'000, 'x') + "\n");
    loop->RunOnce(milliseconds(0));
  }
  EXPECT_TRUE(console->Flush(milliseconds(100)));
}

TEST_F(ConsoleTest, SurvivesDescriptorsThatAreClosed) {
  auto console = Make(-1, -1);
  console->Write(OutputStream::kStdout, "nowhere\n");
  console->SetStatusLine("nowhere");
  EXPECT_TRUE(console->Flush(milliseconds(100)));
}

TEST_F(ConsoleTest, WritesToAFileAndToASocket) {
  TempFolder folder;
  UniqueFd file(::open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  {
    auto console = Make(file.get(), sockets[0]);
    console->Write(OutputStream::kStdout, "into the file\n");
    console->Write(OutputStream::kStderr, "into the socket\n");
  }
  ::close(sockets[0]);
  EXPECT_EQ(ReadAll(folder / "out"), "into the file\n");
  EXPECT_EQ(ReadToEnd(sockets[1]), "into the socket\n");
  ::close(sockets[1]);
}

TEST_F(ConsoleTest, KeepsTheStatusLineBelowTheOutput) {
  Terminal terminal;
  auto console = Make(terminal.slave.get(), terminal.slave.get());
  ASSERT_TRUE(console->has_status_line());
  console->SetStatusLine("step 1");
  EXPECT_EQ(ReadUntil(terminal.master.get(), "step 1"), "step 1");
  console->Write(OutputStream::kStdout, "a line\n");
  EXPECT_EQ(ReadUntil(terminal.master.get(), "step 1"), "\r\x1b[Ka line\nstep 1");
  console->SetStatusLine("step 2");
  EXPECT_EQ(ReadUntil(terminal.master.get(), "step 2"), "\r\x1b[Kstep 2");
  console.reset();
  EXPECT_EQ(ReadUntil(terminal.master.get(), "\x1b[K"), "\r\x1b[K");
}

TEST_F(ConsoleTest, CutsTheStatusLineToTheTerminal) {
  Terminal terminal;
  auto console = Make(terminal.slave.get(), terminal.slave.get());
  std::string bars;
  for (int i = 0; i < 60; ++i) bars += "█";
  console->SetStatusLine(bars);
  EXPECT_EQ(ReadUntil(terminal.master.get(), bars.substr(0, 39 * 3)), bars.substr(0, 39 * 3));
}

TEST_F(ConsoleTest, ColorsOfTheStatusLineTakeNoRoomAndEndWithIt) {
  Terminal terminal;
  auto console = Make(terminal.slave.get(), terminal.slave.get());
  console->SetStatusLine("\x1b[32m" + std::string(60, 'x'));
  const std::string expected = "\x1b[32m" + std::string(39, 'x') + "\x1b[0m";
  EXPECT_EQ(ReadUntil(terminal.master.get(), expected), expected);
}

TEST_F(ConsoleTest, ColorsAreForTerminalsWithoutNoColor) {
  Terminal terminal;
  Pipe pipe;
  auto console = Make(terminal.slave.get(), pipe.write.get());
  EXPECT_TRUE(console->ColorsOn(OutputStream::kStdout));
  EXPECT_FALSE(console->ColorsOn(OutputStream::kStderr));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(console->ColorsOn(OutputStream::kStdout));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(console->ColorsOn(OutputStream::kStdout));
}

TEST_F(ConsoleTest, AStoppedTerminalDoesNotBlockTheLoop) {
  Terminal terminal;
  auto console = Make(terminal.slave.get(), terminal.slave.get());
  ASSERT_EQ(::tcflow(terminal.slave.get(), TCOOFF), 0);  // what ctrl-S does
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3000; ++i) console->Write(OutputStream::kStdout, std::string(99, 'x') + "\n");
  loop->RunOnce(milliseconds(0));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ASSERT_EQ(::tcflow(terminal.slave.get(), TCOON), 0);
}

}  // namespace
}  // namespace lockstep::process
