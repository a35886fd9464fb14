#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <random>

#include "common/contract/authentication.h"
#include "common/contract/store_address.h"
#include "tests/unit/parameter_server/served_job.h"

// Whatever connects to a server, the job goes on.
namespace lockstep::testing {
namespace {

using trainer::parameter_server::Attach;
using trainer::parameter_server::Connection;
using trainer::parameter_server::PeerRole;

UniqueFd Connect(const std::string& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(contract::ParseHostPort(address)->port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

// Whether the other end closes within the patience.
bool IsLetGo(const UniqueFd& fd) {
  char bytes[4096];
  ssize_t got;
  while ((got = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0) {
  }
  return got == 0 || errno == ECONNRESET;
}

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() : run_({.servers = 1, .workers = 2}) {
    run_.StartServer(0);
    address_ = run_.AddressOf(0);
  }
  void ExpectTheJobToEnd() {
    for (int w = 0; w < 2; ++w) run_.StartWorker(w);
    EXPECT_EQ(run_.AwaitEnd(), "finished");
    run_.JoinWorkers();
  }
  // Knows the token; `frames` then.
  void SayAsAMember(PeerRole role, const std::string& frames) {
    const auto where = run_.store().Get(trainer::parameter_server::AddressKey(0), Soon());
    Connection connection =
        Connection::Connect(address_, where->substr(where->find(' ') + 1), run_.Self(0), Soon());
    const auto attached = connection.Ask<trainer::parameter_server::Attached>(
        Attach{.role = role, .index = 0, .fingerprint = 7}, Soon());
    EXPECT_EQ(attached.refused, "");
    connection.Send(frames, Soon());
    EXPECT_THROW(
        {
          while (true) connection.Receive(Soon());
        },
        trainer::parameter_server::ConnectionLost);
  }

  ServedThreads run_;
  std::string address_;
};

TEST_F(HostileTest, StrangersAreLetGo) {
  const std::string frames[] = {"GET / HTTP/1.1\r\n\r\n", std::string(100, '\xff'), std::string(4, '\0'),
                                std::string("\0\0\0\x05", 4) + "hello"};
  for (const std::string& frame : frames) {
    const UniqueFd fd = Connect(address_);
    EXPECT_EQ(::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
    EXPECT_TRUE(IsLetGo(fd));
  }
  ExpectTheJobToEnd();
}

TEST_F(HostileTest, WhoSaysNothingIsLetGoToo) {
  const UniqueFd fd = Connect(address_);
  EXPECT_TRUE(IsLetGo(fd));
  ExpectTheJobToEnd();
}

TEST_F(HostileTest, AnotherTokenOpensNothing) {
  trainer::parameter_server::Membership other = run_.Self(0);
  other.token = contract::Token::Random();
  const auto where = run_.store().Get(trainer::parameter_server::AddressKey(0), Soon());
  EXPECT_THROW(Connection::Connect(address_, where->substr(where->find(' ') + 1), other, Soon()),
               trainer::parameter_server::ConnectionLost);
  ExpectTheJobToEnd();
}

TEST_F(HostileTest, AnOldGenerationIsRefused) {
  trainer::parameter_server::Membership other = run_.Self(0);
  other.generation = 3;
  const auto where = run_.store().Get(trainer::parameter_server::AddressKey(0), Soon());
  EXPECT_THROW(Connection::Connect(address_, where->substr(where->find(' ') + 1), other, Soon()),
               trainer::parameter_server::ConnectionLost);
}

TEST_F(HostileTest, AMemberThatSpeaksNonsenseLosesItsConnectionOnly) {
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string body(1 + random() % 40, '\0');
    for (char& byte : body) byte = static_cast<char>(random());
    body[0] = static_cast<char>(64 + random() % 16);
    std::string frame = {0, 0, 0, static_cast<char>(body.size())};
    // Behind it a frame that is too long in any case.
    SayAsAMember(i % 2 == 0 ? PeerRole::kWorker : PeerRole::kEvaluator,
                 frame + body + std::string(4, '\x7f'));
  }
  ExpectTheJobToEnd();
}

}  // namespace
}  // namespace lockstep::testing
