// What hostile clients can do to the server: nothing.

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "launcher/http/client.h"
#include "launcher/http/listen_socket.h"
#include "launcher/http/server.h"
#include "tests/unit/http/raw_client.h"

namespace lockstep::http {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::unique_ptr<HttpServer> Serve(ServerOptions options = {}) {
  auto server = std::make_unique<HttpServer>(std::move(options));
  server->Handle("/healthz", [](const Request&) { return Response{.body = "ok\n"}; });
  server->Handle("/large", [](const Request&) { return Response{.body = std::string(32 << 20, 'x')}; });
  const Status status = server->Start();
  EXPECT_TRUE(status.ok()) << status.ToString();
  return server;
}

bool Healthy(const HttpServer& server) {
  const auto answer = Get("http://" + server.address() + "/healthz", Clock::now() + RawClient::kPatience);
  return answer.ok() && answer->status == 200;
}

int64_t ResidentBytes() {
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

int OpenFiles() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

double ProcessSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// An IPv4 address of this machine that is not loopback; empty when there is none.
std::string OwnAddress() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET && !IsLoopback(it->ifa_addr)) {
      found = HostOf(it->ifa_addr);
    }
  }
  ::freeifaddrs(list);
  return found;
}

// Every connection sends one header byte at a time for as long as it may.
TEST(HttpServerLimitsTest, TricklingClientsAreCutAndDelayNobody) {
  const auto server = Serve({.request_deadline = milliseconds(1500)});
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(std::make_unique<RawClient>(server->port()));
    ASSERT_TRUE(slow.back()->Send("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "));
  }
  const auto start = Clock::now();
  size_t open = slow.size();
  while (open > 0 && Clock::now() - start < RawClient::kPatience) {
    ASSERT_TRUE(Healthy(*server));
    open = 0;
    for (auto& client : slow) {
      if (client && !client->Send("a")) client.reset();
      if (client) ++open;
    }
  }
  EXPECT_EQ(open, 0u) << "not cut after " << RawClient::kPatience.count() << " s of trickling";
  EXPECT_TRUE(Healthy(*server));
}

TEST(HttpServerLimitsTest, ASilentAndAHalfOpenConnectionAreClosedAtTheDeadline) {
  const auto server = Serve({.request_deadline = milliseconds(300)});
  RawClient silent(server->port());
  RawClient half(server->port());
  half.Send("GET /heal");
  half.HalfClose();
  EXPECT_EQ(silent.ReadToEnd(), "");
  half.ReadToEnd();
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(half.closed());
}

TEST(HttpServerLimitsTest, AClientThatDoesNotReadItsAnswerIsCut) {
  const auto server = Serve({.request_deadline = milliseconds(500)});
  const int before = OpenFiles();
  RawClient client(server->port());
  ASSERT_TRUE(client.Send(GetRequest("/large")));
  const auto limit = Clock::now() + RawClient::kPatience;
  // The client's own descriptor stays, the server's goes.
  bool accepted = false;
  while (Clock::now() < limit && !(accepted && OpenFiles() == before + 1)) {
    accepted = accepted || OpenFiles() == before + 2;
    ASSERT_TRUE(Healthy(*server));
  }
  EXPECT_EQ(OpenFiles(), before + 1);
}

TEST(HttpServerLimitsTest, AKeptAliveConnectionIsClosedWhenItsNextRequestDoesNotCome) {
  const auto server = Serve({.keep_alive = milliseconds(300)});
  RawClient client(server->port());
  ASSERT_TRUE(client.Send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(client.ReadToEnd(), HasSubstr("ok\n"));
  EXPECT_TRUE(client.closed());
}

TEST(HttpServerLimitsTest, ACrowdBeyondTheCapPushesOutItsOwn) {
  const auto server = Serve({.request_deadline = milliseconds(60'000), .max_connections = 16});
  const int before = OpenFiles();
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(std::make_unique<RawClient>(server->port()));
    crowd.back()->Send("GET /healthz HTTP/1.1\r\nX: ");
    if (i % 20 == 19) {
      ASSERT_TRUE(Healthy(*server)) << i;
    }
  }
  EXPECT_TRUE(Healthy(*server));
  // The server holds its sixteen and those it is just closing.
  const auto limit = Clock::now() + RawClient::kPatience;
  while (OpenFiles() - before - 200 > 17 && Clock::now() < limit) ASSERT_TRUE(Healthy(*server));
  EXPECT_LE(OpenFiles() - before - 200, 17);
}

TEST(HttpServerLimitsTest, OneAddressCannotTakeAllConnections) {
  const std::string host = OwnAddress();
  if (host.empty()) GTEST_SKIP() << "only loopback here";
  const auto server = Serve({.address = "0.0.0.0",
                             .request_deadline = milliseconds(60'000),
                             .max_connections = 100,
                             .max_connections_per_address = 4});
  RawClient bystander(server->port());  // from loopback, older than the crowd
  ASSERT_TRUE(bystander.Send("GET /healthz HTTP/1.1\r\n"));
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 5; ++i) {
    crowd.push_back(std::make_unique<RawClient>(server->port(), host));
    ASSERT_TRUE(crowd.back()->Send("GET /healthz HTTP/1.1\r\n"));
  }
  crowd.front()->ReadToEnd();
  EXPECT_TRUE(crowd.front()->closed());
  for (size_t i = 1; i < crowd.size(); ++i) {
    ASSERT_TRUE(crowd[i]->Send("Host: x\r\n\r\n"));
    EXPECT_THAT(crowd[i]->ReadUntil("ok\n"), HasSubstr("ok\n")) << i;
  }
  ASSERT_TRUE(bystander.Send("Host: x\r\n\r\n"));
  EXPECT_THAT(bystander.ReadUntil("ok\n"), HasSubstr("ok\n"));
}

TEST(HttpServerLimitsTest, AnEndlessHeaderStreamIsCutAndDoesNotGrowTheProcess) {
  const auto server = Serve();
  ASSERT_TRUE(Healthy(*server));
  const int64_t before = ResidentBytes();
  const std::string chunk(64 * 1024, 'a');
  for (int round = 0; round < 8; ++round) {
    RawClient client(server->port());
    client.Send(round % 2 == 0 ? "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " : "GET /");
    bool cut = false;
    for (int i = 0; i < 160 && !cut; ++i) cut = !client.Send(chunk);  // 10 MB
    EXPECT_TRUE(cut) << round;
  }
  EXPECT_LT(ResidentBytes() - before, 16 << 20);
  EXPECT_TRUE(Healthy(*server));
}

TEST(HttpServerLimitsTest, ARequestHasEightKilobytesAndNotOneMore) {
  const auto server = Serve();
  const auto padded = [](size_t size) {
    std::string head = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: ";
    return head + std::string(size - head.size() - 4, 'a') + "\r\n\r\n";
  };
  EXPECT_TRUE(IsStatus(Exchange(server->port(), padded(8192)), 200));
  EXPECT_TRUE(IsStatus(Exchange(server->port(), padded(8193)), 431));
  EXPECT_TRUE(IsStatus(Exchange(server->port(), padded(15 * 1024)), 431));
}

TEST(HttpServerLimitsTest, AHugeTargetIsRefused) {
  const auto server = Serve();
  EXPECT_TRUE(IsStatus(Exchange(server->port(), GetRequest("/" + std::string(4000, 'a'))), 404));
  EXPECT_TRUE(IsStatus(Exchange(server->port(), GetRequest("/" + std::string(9000, 'a'))), 414));
  // Too large to be taken in at all: an answer or a reset, but no service.
  EXPECT_THAT(Exchange(server->port(), GetRequest("/" + std::string(200'000, 'a'))), Not(HasSubstr(" 200 ")));
  EXPECT_TRUE(Healthy(*server));
}

TEST(HttpServerLimitsTest, ManyTinyHeadersAreBoundedToo) {
  const auto server = Serve();
  std::string request = "GET /healthz HTTP/1.1\r\nHost: x\r\n";
  while (request.size() < 8000) request += "a:\r\n";
  EXPECT_THAT(Exchange(server->port(), request + "\r\n"), Not(HasSubstr(" 500 ")));
  EXPECT_TRUE(Healthy(*server));
}

TEST(HttpServerLimitsTest, BodiesAreRefusedAtOnce) {
  const auto server = Serve();
  for (const std::string header :
       {"Content-Length: 10000000", "Content-Length: 1", "Transfer-Encoding: chunked",
        "Content-Length: 5\r\nExpect: 100-continue"}) {
    RawClient client(server->port());
    ASSERT_TRUE(client.Send("GET /healthz HTTP/1.1\r\nHost: x\r\n" + header + "\r\n\r\n"));
    const std::string answer = client.ReadToEnd();
    EXPECT_TRUE(IsStatus(answer, 413)) << header << ": " << answer;
    EXPECT_TRUE(client.closed()) << header;
  }
  for (const char* length : {"-1", "5x", "99999999999999999999999999"}) {
    const std::string request =
        std::string("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: ") + length + "\r\n\r\n";
    EXPECT_THAT(Exchange(server->port(), request), Not(HasSubstr(" 200 "))) << length;
  }
}

TEST(HttpServerLimitsTest, RestsWhileNothingHappens) {
  const auto server = Serve();
  RawClient idle(server->port());  // an open connection costs nothing either
  ASSERT_TRUE(Healthy(*server));
  const double before = ProcessSeconds();
  RawClient quiet(server->port());
  pollfd wait{quiet.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 500), 0);
  EXPECT_LT(ProcessSeconds() - before, 0.05);
}

TEST(HttpServerLimitsTest, ServesManyClientsAtOnce) {
  const auto server = Serve();
  std::vector<std::thread> threads;
  std::vector<int> good(8, 0);
  for (size_t t = 0; t < good.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) good[t] += Healthy(*server) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(good, testing::Each(25));
}

}  // namespace
}  // namespace lockstep::http
