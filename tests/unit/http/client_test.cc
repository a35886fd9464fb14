#include "launcher/http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "launcher/http/listen_socket.h"
#include "launcher/http/server.h"
#include "tests/unit/http/raw_client.h"

namespace lockstep::http {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::HasSubstr;

Clock::time_point Soon() { return Clock::now() + RawClient::kPatience; }

// Accepts one client and sends it `bytes` for as long as it listens.
class BadServer {
 public:
  explicit BadServer(std::string greeting, std::string bytes) {
    auto listening = Listen("127.0.0.1", 0);
    EXPECT_TRUE(listening.ok());
    address_ = listening->address;
    thread_ = std::thread([this, fd = std::move(listening->fd), greeting, bytes] {
      pollfd wait{fd.get(), POLLIN, 0};
      ::poll(&wait, 1, 20'000);
      const UniqueFd client(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
      ::send(client.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
      pollfd gone{client.get(), POLLRDHUP, 0};
      while (!bytes.empty() && ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
        if (::poll(&gone, 1, 10) > 0) break;
      }
      if (bytes.empty()) ::poll(&gone, 1, 20'000);
    });
  }
  ~BadServer() { thread_.join(); }
  std::string url() const { return "http://" + address_ + "/"; }

 private:
  std::string address_;
  std::thread thread_;
};

TEST(HttpClientTest, ReturnsStatusTypeHeadersAndBody) {
  HttpServer server;
  server.Handle("/a", [](const Request& request) {
    return Response{
        .status = 503, .content_type = "text/x", .body = request.header("host"), .headers = {{"X-Y", "z"}}};
  });
  ASSERT_TRUE(server.Start().ok());
  const auto response = Get("http://" + server.address() + "/a?b=c", Soon());
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->content_type, "text/x");
  EXPECT_EQ(response->body, server.address());
  EXPECT_EQ(response->headers.at("x-y"), "z");
}

TEST(HttpClientTest, ABodyOverTheLimitIsAnError) {
  HttpServer server;
  server.Handle("/", [](const Request&) { return Response{.body = std::string(1000, 'x')}; });
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(Get("http://" + server.address(), Soon(), 1000).ok());
  EXPECT_EQ(Get("http://" + server.address(), Soon(), 999).status().code(), StatusCode::kResourceExhausted);
}

TEST(HttpClientTest, NobodyThereIsUnavailableAndNamesTheUrl) {
  int port = 0;
  {
    const auto listening = Listen("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok());
    port = listening->port;
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/x";
  const Status status = Get(url, Soon()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(url));
}

TEST(HttpClientTest, TheDeadlineHoldsForSilenceAndForTrickledHeadersAndBodies) {
  for (const auto& [greeting, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"HTTP/1.1 200 OK\r\nX: ", "a"},
           {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "a"}}) {
    const BadServer server(greeting, bytes);
    const auto start = Clock::now();
    const Status status = Get(server.url(), start + milliseconds(300)).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << greeting << status.ToString();
    EXPECT_GE(Clock::now() - start, milliseconds(299));
    EXPECT_LT(Clock::now() - start, RawClient::kPatience);
  }
}

TEST(HttpClientTest, RefusesUrlsThatItDoesNotUnderstand) {
  for (const char* url :
       {"", "127.0.0.1/", "https://x/", "http://", "http://:80/", "http://x:0/", "http://x:65536/",
        "http://x:8y/", "http://[::1/", "http://x/a b", "http://x/a\r\nY: z", "file:///etc/passwd"}) {
    EXPECT_EQ(Get(url, Soon()).status().code(), StatusCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace lockstep::http
