#include "launcher/rendezvous/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/contract/environment.h"
#include "launcher/rendezvous/listener.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::rendezvous {
namespace {

using contract::StoreClient;
using ::testing::HasSubstr;
using testing::In;
using testing::kPatience;
using testing::milliseconds;
using testing::RawConnection;
using testing::seconds;
using testing::ServerThread;

Status ConnectStatus(const StoreClient::Options& options) { return StoreClient::Connect(options).status(); }

TEST(StoreServerTest, DeadlineNamesTheRanksThatAreNotHere) {
  ServerThread server;
  server.Begin(0, 5);
  const auto rank0 = server.Client(0);
  const auto rank1 = server.Client(1);
  server.Client(4).reset();  // came and went
  ASSERT_TRUE(server.Await([](const auto& s) { return s.authenticated == 3; }));
  std::string absent;
  const auto deadline = In(kPatience);
  while (absent.find("left") == std::string::npos && testing::Clock::now() < deadline) {
    server.On([&](StoreServer& s) { absent = s.AbsentRanks(); });
  }
  const Status status = rank0->Wait({"address/2", "address/3"}, In(seconds(2)));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("keys address/2, address/3"));
  EXPECT_THAT(status.message(), HasSubstr("ranks 2, 3 have not connected to the store"));
  EXPECT_THAT(status.message(), HasSubstr("rank 4 has left it"));
}

TEST(StoreServerTest, RankOfAnOldGenerationIsRefusedAndToldTheCurrentOne) {
  ServerThread server;
  server.Begin(6, 2);
  const Status status = ConnectStatus(server.ClientOptions(0, 5));
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("generation 5 is over"));
  EXPECT_THAT(status.message(), HasSubstr("generation 6 is current"));
  server.On([](StoreServer& s) { s.EndGeneration("a test"); });
  EXPECT_EQ(ConnectStatus(server.ClientOptions(0, 6)).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(server.statistics().refused, 2);
}

TEST(StoreServerTest, RankOfTheNextGenerationWaitsForIt) {
  ServerThread server;
  server.Begin(0, 2);
  std::unique_ptr<StoreClient> early;
  std::thread rank([&] { early = server.Client(1, 1); });
  ASSERT_TRUE(server.Await([](const auto& s) { return s.refused >= 1; }));
  server.Begin(1, 2);
  rank.join();
  ASSERT_NE(early, nullptr);
  EXPECT_TRUE(early->Set("k", "v", In(kPatience)).ok());
}

TEST(StoreServerTest, NewGenerationStartsEmptyAndEndsTheOldOnesConnections) {
  ServerThread server;
  server.Begin(0, 2);
  const auto old = server.Client(0);
  ASSERT_TRUE(old->Set("key", "old", In(kPatience)).ok());
  Status waited;
  std::thread waiting([&] { waited = old->Wait({"never"}, In(kPatience)); });
  server.Begin(1, 2);
  waiting.join();
  EXPECT_EQ(waited.code(), StatusCode::kAborted);
  EXPECT_THAT(waited.message(), HasSubstr("generation 0 is over"));
  EXPECT_EQ(old->Set("key", "late", In(kPatience)).code(), StatusCode::kAborted);
  const auto current = server.Client(0, 1);
  EXPECT_EQ(current->Get("key", In(milliseconds(50))).status().code(), StatusCode::kDeadlineExceeded);
}

TEST(StoreServerTest, RefusesAnotherJobARankOutsideTheWorldAndAnotherStore) {
  ServerThread server;
  server.Begin(0, 2);
  auto options = server.ClientOptions(0);
  options.job = "cifar";
  EXPECT_EQ(ConnectStatus(options).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(ConnectStatus(options).message(), HasSubstr("job mnist, not of job cifar"));
  EXPECT_EQ(ConnectStatus(server.ClientOptions(2)).code(), StatusCode::kInvalidArgument);
  options = server.ClientOptions(0);
  server.On([&](StoreServer& s) { options.store_id = s.store_id(); });
  EXPECT_TRUE(StoreClient::Connect(options).ok());
  options.store_id[0] = options.store_id[0] == '0' ? '1' : '0';
  EXPECT_EQ(ConnectStatus(options).code(), StatusCode::kPermissionDenied);
}

TEST(StoreServerTest, WrongTokenFailsAtOnceAndIsCounted) {
  ServerThread server;
  server.Begin(0, 1);
  auto options = server.ClientOptions(0);
  options.token = contract::Token::Random();
  const Status status = ConnectStatus(options);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("another token"));
  EXPECT_TRUE(server.Await([](const auto& s) { return s.strangers == 1; }));
  EXPECT_EQ(server.statistics().authenticated, 0);
}

TEST(StoreServerTest, MemoryIsBounded) {
  ServerThread server([](StoreServer::Options& options) { options.max_bytes = 3 << 20; });
  server.Begin(0, 1);
  const auto rank = server.Client(0);
  const std::string value(1 << 20, 'v');
  EXPECT_TRUE(rank->Set("a", value, In(kPatience)).ok());
  EXPECT_TRUE(rank->Set("b", value, In(kPatience)).ok());
  EXPECT_EQ(rank->Set("c", value, In(kPatience)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*rank->Get("a", In(kPatience)), value);
}

TEST(StoreServerTest, RequestsThatWaitAreBounded) {
  ServerThread server([](StoreServer::Options& options) { options.max_pending_requests = 2; });
  server.Begin(0, 2);
  const auto rank = server.Client(0);
  const auto other = server.Client(1);
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const Status status = rank->Wait({"key"}, In(kPatience));
      if (status.code() == StatusCode::kResourceExhausted) {
        ++refused;
        EXPECT_TRUE(other->Set("key", "", In(kPatience)).ok());  // lets the two others go
      } else {
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 1);
}

TEST(StoreServerTest, DropsWhatDoesNotSpeakTheProtocolWithoutAWord) {
  ServerThread server;
  server.Begin(0, 1);
  int64_t strangers = 0;
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 9), std::string("\xff\xff\xff\xff", 4),
        std::string(4, '\0'), std::string(100'000, 'A'),
        contract::FrameWriter(contract::FrameType::kSet).Raw("too early").Finish()}) {
    RawConnection stranger(server.port());
    ASSERT_TRUE(stranger.connected());
    stranger.Send(garbage);
    EXPECT_EQ(stranger.CountUntilClosed(), 0);
    EXPECT_TRUE(server.Await([&](const auto& s) { return s.strangers == strangers + 1; }));
    ++strangers;
  }
  EXPECT_NE(server.Client(0), nullptr);
}

TEST(StoreServerTest, WrongAnswerIsDroppedAndCounted) {
  ServerThread server;
  server.Begin(0, 1);
  RawConnection stranger(server.port());
  contract::ClientHandshake handshake(contract::Token::Random(),
                                      {.job = "mnist", .generation = 0, .index = 0});
  ASSERT_TRUE(stranger.Send(handshake.hello()));
  ASSERT_FALSE(stranger.ReceiveFrame().empty());  // the Challenge
  stranger.Send(contract::FrameWriter(contract::FrameType::kAnswer).Raw(std::string(32, 'x')).Finish());
  EXPECT_EQ(stranger.CountUntilClosed(), 0);
  EXPECT_TRUE(server.Await([](const auto& s) { return s.strangers == 1; }));
}

TEST(StoreServerTest, HalfOpenConnectionsEndAtTheirDeadline) {
  ServerThread server([](StoreServer::Options& options) { options.handshake_deadline = milliseconds(100); });
  server.Begin(0, 1);
  RawConnection silent(server.port());
  RawConnection trickling(server.port());
  trickling.Send(std::string("\0\0", 2));
  EXPECT_EQ(silent.CountUntilClosed(), 0);
  EXPECT_EQ(trickling.CountUntilClosed(), 0);
  EXPECT_EQ(server.statistics().timed_out, 2);
}

TEST(StoreServerTest, NewcomerTakesThePlaceOfTheOldestHalfOpenConnection) {
  ServerThread server([](StoreServer::Options& options) { options.max_half_open = 2; });
  server.Begin(0, 1);
  RawConnection first(server.port());
  ASSERT_TRUE(server.Await([](const auto& s) { return s.accepted == 1; }));
  RawConnection second(server.port());
  ASSERT_TRUE(server.Await([](const auto& s) { return s.accepted == 2; }));
  const auto rank = server.Client(0);
  EXPECT_EQ(first.CountUntilClosed(), 0);
  EXPECT_EQ(server.statistics().evicted, 1);
  EXPECT_TRUE(rank->Set("k", "", In(kPatience)).ok());
}

TEST(StoreServerTest, ConnectionsAreBounded) {
  ServerThread server([](StoreServer::Options& options) { options.max_connections = 2; });
  server.Begin(0, 3);
  const auto one = server.Client(0);
  const auto two = server.Client(1);
  auto options = server.ClientOptions(2);
  options.deadline = In(milliseconds(100));
  EXPECT_EQ(ConnectStatus(options).code(), StatusCode::kDeadlineExceeded);
  EXPECT_GT(server.statistics().over_limit, 0);
  EXPECT_TRUE(one->Set("k", "", In(kPatience)).ok());
}

TEST(StoreServerTest, ThousandStraysDoNotKeepRealRanksFromTheirWork) {
  ServerThread server;
  constexpr int kRanks = 4;
  server.Begin(0, kRanks);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      int64_t rounds = 0;
      while (!done || rounds < 20) {
        const auto client = server.Client(rank);
        if (client == nullptr) return;
        EXPECT_TRUE(client->Add("count", 1, In(kPatience)).ok());
        ++rounds;
      }
    });
  }
  {
    // Most of them stay, half open or with half a header, until another takes their place.
    std::vector<std::unique_ptr<RawConnection>> strays;
    for (int i = 0; i < 1000; ++i) {
      strays.push_back(std::make_unique<RawConnection>(server.port()));
      ASSERT_TRUE(strays.back()->connected());
      if (i % 3 == 0) strays.back()->Send("GET / HTTP/1.0\r\n\r\n");
      if (i % 3 == 1) strays.back()->Send(std::string("\0\0\0", 3));
      if (strays.size() > 200) strays.erase(strays.begin());
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(server.Await([](const auto& s) { return s.accepted - s.authenticated >= 1000; }));
  server.On([](StoreServer& s) { EXPECT_LE(s.half_open(), 64u); });
}

TEST(StoreServerTest, RankThatSendsNonsenseIsDropped) {
  ServerThread server;
  server.Begin(0, 2);
  RawConnection rank(server.port());
  contract::ClientHandshake handshake(server.token, {.job = "mnist", .generation = 0, .index = 0});
  ASSERT_TRUE(rank.Send(handshake.hello()));
  ASSERT_TRUE(rank.Send(*handshake.Answer(rank.ReceiveFrame())));
  ASSERT_TRUE(contract::DecodeWelcome(rank.ReceiveFrame())->status.ok());
  rank.Send(contract::FrameWriter(contract::FrameType::kGet).U32(0).Finish());
  EXPECT_EQ(rank.CountUntilClosed(), 0);
  EXPECT_EQ(server.statistics().malformed, 1);
  EXPECT_TRUE(server.Client(1)->Set("k", "", In(kPatience)).ok());
}

TEST(StoreServerTest, SurvivesRunningOutOfDescriptors) {
  ServerThread server;
  server.Begin(0, 1);
  const auto rank = server.Client(0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<std::unique_ptr<RawConnection>> strays;
  for (int i = 0; i < 4; ++i) strays.push_back(std::make_unique<RawConnection>(server.port()));
  ASSERT_TRUE(server.Await([](const auto& s) { return s.accepted == 5; }));
  {
    const UniqueFd highest(::dup(0));
    UniqueFd pending(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const rlimit none{.rlim_cur = static_cast<rlim_t>(highest.get()), .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(pending.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_TRUE(rank->Set("k", "v", In(kPatience)).ok());  // who is in works on
    const auto start = testing::Clock::now();
    ASSERT_TRUE(server.Await([](const auto& s) { return s.accept_pauses >= 4; }));
    EXPECT_GT(testing::Clock::now() - start, milliseconds(100)) << "the loop spins";
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(server.Await([](const auto& s) { return s.accepted == 6; }));
  }
}

// --- the client

TEST(StoreClientTest, WaitsForAStoreThatIsNotThereYet) {
  contract::Token token = contract::Token::Random();
  uint16_t port = 0;
  { port = ListenOn("127.0.0.1:0")->port; }
  Result<std::unique_ptr<StoreClient>> client = Internal("");
  std::thread rank([&] {
    client = StoreClient::Connect({.address = "127.0.0.1:" + std::to_string(port),
                                   .token = token,
                                   .job = "mnist",
                                   .generation = 0,
                                   .rank = 0,
                                   .deadline = In(kPatience)});
  });
  ServerThread server([&](StoreServer::Options& options) {
    options.address = "127.0.0.1:" + std::to_string(port);
    options.token = token;
  });
  server.Begin(0, 1);
  rank.join();
  EXPECT_TRUE(client.ok()) << client.status().ToString();
}

TEST(StoreClientTest, GivesUpAtItsDeadlineAndSaysWhy) {
  uint16_t port = 0;
  { port = ListenOn("127.0.0.1:0")->port; }
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto deadline = In(milliseconds(200));
  const Status status = ConnectStatus({.address = address,
                                       .token = contract::Token::Random(),
                                       .job = "mnist",
                                       .generation = 0,
                                       .rank = 3,
                                       .deadline = deadline});
  EXPECT_LT(testing::Clock::now(), deadline + seconds(5));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("rank 3"));
  EXPECT_THAT(status.message(), HasSubstr(address));
  EXPECT_THAT(status.message(), HasSubstr("Connection refused"));
}

TEST(StoreClientTest, NameThatIsNotKnownYetIsTriedUntilTheDeadline) {
  const Status status = ConnectStatus({.address = "no-such-host.invalid:80",
                                       .token = contract::Token::Random(),
                                       .job = "mnist",
                                       .generation = 0,
                                       .rank = 0,
                                       .deadline = In(milliseconds(200))});
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("no-such-host.invalid"));
}

TEST(StoreClientTest, PortOfAnotherProgramIsAnErrorAtOnce) {
  const Result<Listener> listener = ListenOn("127.0.0.1:0");
  std::thread web_server([&] {
    pollfd poll{.fd = listener->socket.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&poll, 1, 30'000), 1);
    const UniqueFd connection(::accept4(listener->socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string_view text = "HTTP/1.1 400 Bad Request\r\n\r\n";
    EXPECT_GT(::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    char bytes[512];
    while (::recv(connection.get(), bytes, sizeof bytes, 0) > 0) {
    }
  });
  const Status status = ConnectStatus({.address = "127.0.0.1:" + std::to_string(listener->port),
                                       .token = contract::Token::Random(),
                                       .job = "mnist",
                                       .generation = 0,
                                       .rank = 0,
                                       .deadline = In(kPatience)});
  web_server.join();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no Lockstep rendezvous"));
}

TEST(StoreClientTest, LostStoreIsUnavailableForGood) {
  auto server = std::make_unique<ServerThread>();
  server->Begin(0, 1);
  const auto rank = server->Client(0);
  Status waited;
  std::thread waiting([&] { waited = rank->Wait({"never"}, In(kPatience)); });
  ASSERT_TRUE(rank->Set("k", "", In(kPatience)).ok());
  server.reset();
  waiting.join();
  EXPECT_EQ(waited.code(), StatusCode::kUnavailable);
  EXPECT_EQ(rank->Set("k", "", In(kPatience)).code(), StatusCode::kUnavailable);
  EXPECT_EQ(rank->Get("k", In(kPatience)).status().code(), StatusCode::kUnavailable);
}

class StoreFromEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(contract::Token::Create(folder_.File("token")).ok());
    for (const auto& [name, value] : Variables()) ::setenv(name, value.c_str(), 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : Variables()) ::unsetenv(name);
  }
  std::vector<std::pair<const char*, std::string>> Variables() const {
    return {{contract::kStoreAddress, address_},
            {contract::kTokenFile, folder_.File("token")},
            {contract::kJob, "mnist"},
            {contract::kGeneration, "0"},
            {contract::kRank, "0"}};
  }

  const testing::TemporaryFolder folder_;
  const std::string address_ = "127.0.0.1:1";
};

TEST_F(StoreFromEnvironmentTest, ReachesTheStoreOfTheLauncher) {
  const contract::Token token = *contract::Token::Read(folder_.File("token"));
  ServerThread server([&](StoreServer::Options& options) { options.token = token; });
  server.Begin(0, 1);
  ::setenv(contract::kStoreAddress, server.address().c_str(), 1);
  const Result<std::unique_ptr<contract::Store>> store = contract::StoreFromEnvironment(In(kPatience));
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_TRUE((*store)->Set("k", "v", In(kPatience)).ok());
}

TEST_F(StoreFromEnvironmentTest, NamesTheVariableThatIsMissingOrWrong) {
  for (const auto& [name, value] : Variables()) {
    ::unsetenv(name);
    const Status status = contract::StoreFromEnvironment(In(milliseconds(100))).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(name));
    ::setenv(name, value.c_str(), 1);
  }
  ::setenv(contract::kRank, "two", 1);
  const Status status = contract::StoreFromEnvironment(In(milliseconds(100))).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("RANK=two"));
}

}  // namespace
}  // namespace lockstep::rendezvous
