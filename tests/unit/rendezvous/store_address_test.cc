#include "common/contract/store_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

#include "launcher/rendezvous/listener.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::contract {
namespace {

using rendezvous::testing::In;
using rendezvous::testing::kPatience;

TEST(HostPortTest, ReadsNamesAndAddresses) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& c : {Case{"node1:4567", "node1", 4567}, Case{"10.0.0.1:1", "10.0.0.1", 1},
                        Case{"[fd00::1]:65535", "fd00::1", 65535}, Case{":0", "", 0}, Case{"[::]:8", "::", 8},
                        Case{"a.b.svc.cluster.local.:80", "a.b.svc.cluster.local.", 80}}) {
    const Result<HostPort> read = ParseHostPort(c.text);
    ASSERT_TRUE(read.ok()) << c.text;
    EXPECT_EQ(read->host, c.host);
    EXPECT_EQ(read->port, c.port);
    EXPECT_EQ(FormatHostPort(read->host, read->port), c.text);
  }
}

TEST(HostPortTest, SaysWhatWouldBeRight) {
  for (const char* text : {"", "node1", "node1:", "node1:x", "node1:70000", "node1:-1", "fd00::1:80",
                           "[fd00::1]", "[fd00::1:80", "node1:80 ", "node1: 80"}) {
    const Result<HostPort> read = ParseHostPort(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.status().message(), ::testing::HasSubstr("expected HOST:PORT"));
  }
}

TEST(NameLookupTest, NumbersAreThereAtOnce) {
  const NameLookup lookup({.host = "127.0.0.1", .port = 80});
  ASSERT_TRUE(lookup.done());
  const Result<std::vector<SocketAddress>> addresses = lookup.Take();
  ASSERT_TRUE(addresses.ok());
  EXPECT_EQ(addresses->front().host(), "127.0.0.1");
  EXPECT_EQ(addresses->front().port(), 80);
}

TEST(NameLookupTest, NamesAreLookedUp) {
  const NameLookup lookup({.host = "localhost", .port = 80});
  lookup.Wait(In(kPatience));
  ASSERT_TRUE(lookup.done());
  const Result<std::vector<SocketAddress>> addresses = lookup.Take();
  ASSERT_TRUE(addresses.ok()) << addresses.status().ToString();
  EXPECT_THAT(addresses->front().host(), ::testing::AnyOf("127.0.0.1", "::1"));
}

TEST(NameLookupTest, UnknownNameIsWorthAnotherTry) {
  const NameLookup lookup({.host = "no-such-host.invalid", .port = 80});
  lookup.Wait(In(kPatience));
  const Result<std::vector<SocketAddress>> addresses = lookup.Take();
  ASSERT_FALSE(addresses.ok());
  EXPECT_TRUE(addresses.status().retryable());
  EXPECT_THAT(addresses.status().message(), ::testing::HasSubstr("no-such-host.invalid"));
}

size_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(NameLookupTest, EarlyEndDoesNotWait) {
  const size_t threads = ThreadsOfThisProcess();
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) NameLookup({.host = "host" + std::to_string(i) + ".invalid", .port = 80});
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  // The resolver's threads end by themselves. Whoever looks for leaks at the exit would find what one still
  // holds.
  while (ThreadsOfThisProcess() > threads &&
         std::chrono::steady_clock::now() - before < std::chrono::seconds(60)) {
    std::this_thread::yield();
  }
}

TEST(ListenerTest, TakenPortIsAnErrorWithTheAddress) {
  const Result<rendezvous::Listener> first = rendezvous::ListenOn("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  const std::string address = FormatHostPort("127.0.0.1", first->port);
  const Result<rendezvous::Listener> second = rendezvous::ListenOn(address);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr(address));
}

TEST(PortReservationTest, KeepsSeveralInARow) {
  const Result<rendezvous::PortReservation> reservation = rendezvous::PortReservation::Create(8);
  ASSERT_TRUE(reservation.ok()) << reservation.status().ToString();
  // No other launcher's, however many there are.
  std::vector<rendezvous::PortReservation> others;
  for (int i = 0; i < 500; ++i) {
    Result<rendezvous::PortReservation> other = rendezvous::PortReservation::Create(8);
    if (!other.ok()) break;  // by now they are scattered
    EXPECT_GE(std::abs(other->port() - reservation->port()), 8);
    others.push_back(std::move(*other));
  }
  EXPECT_GT(others.size(), 50U);
  for (int i = 0; i < 8; ++i) {
    const std::string address = "127.0.0.1:" + std::to_string(reservation->port() + i);
    EXPECT_TRUE(rendezvous::ListenOn(address).ok()) << "who asks for it gets it: " << address;
  }
}

TEST(PortReservationTest, RefusesMoreThanThereAre) {
  const Result<rendezvous::PortReservation> reservation = rendezvous::PortReservation::Create(60000);
  EXPECT_EQ(reservation.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(reservation.status().message(), ::testing::HasSubstr("no 60000 free ports in a row"));
}

TEST(PortReservationTest, IsGivenToNobodyWhoAsksForAnyPortButToWhoAsksForIt) {
  const Result<rendezvous::PortReservation> reservation = rendezvous::PortReservation::Create();
  ASSERT_TRUE(reservation.ok());
  EXPECT_GT(reservation->port(), 0);
  for (int i = 0; i < 50; ++i) {
    EXPECT_NE(rendezvous::ListenOn("127.0.0.1:0")->port, reservation->port());
  }
  for (const char* host : {"127.0.0.1", ""}) {
    const Result<rendezvous::Listener> listener =
        rendezvous::ListenOn(FormatHostPort(host, reservation->port()));
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    EXPECT_EQ(listener->port, reservation->port());
  }
}

}  // namespace
}  // namespace lockstep::contract
