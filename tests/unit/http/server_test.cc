#include "launcher/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libdeflate.h>

#include <stdexcept>

#include "launcher/http/client.h"
#include "tests/unit/http/raw_client.h"

namespace lockstep::http {
namespace {

using testing::HasSubstr;
using testing::Not;

class HttpServerTest : public testing::Test {
 protected:
  void Start(ServerOptions options = {}) {
    server_ = std::make_unique<HttpServer>(std::move(options));
    server_->Handle("/healthz", [](const Request&) { return Response{.body = "ok\n"}; });
    server_->Handle("/echo", [](const Request& request) {
      return Response{.status = 202,
                      .content_type = "application/json",
                      .body = request.method + " " + request.path + " " + request.header("x-test"),
                      .headers = {{"X-Answer", "42"}}};
    });
    server_->Handle("/long", [](const Request&) { return Response{.body = LongText(), .compresses = true}; });
    server_->Handle("/short", [](const Request&) { return Response{.body = "ok\n", .compresses = true}; });
    server_->Handle("/throws", [](const Request&) -> Response { throw std::runtime_error("a secret"); });
    const Status started = server_->Start();
    ASSERT_TRUE(started.ok()) << started.ToString();
  }
  static std::string LongText() {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += "series{rank=\"" + std::to_string(i) + "\"} 1\n";
    return text;
  }
  std::string Exchange(std::string_view request) { return http::Exchange(server_->port(), request); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersWithStatusTypeHeadersAndBody) {
  Start();
  const std::string answer = Exchange(
      "GET /echo?a=b HTTP/1.1\r\nHost: x\r\nX-Test: one\r\nx-test: two\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(IsStatus(answer, 202)) << answer;
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Answer: 42\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nGET /echo one, two")) << answer;
}

TEST_F(HttpServerTest, ALongBodyGoesAsGzipToWhoTakesIt) {
  Start();
  const std::string answer =
      Exchange("GET /long HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Encoding: gzip\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nVary: Accept-Encoding\r\n"));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  const std::string whole = LongText();
  EXPECT_LT(body.size(), whole.size() / 3);
  std::string inflated(whole.size(), '\0');
  libdeflate_decompressor* inflate = libdeflate_alloc_decompressor();
  EXPECT_EQ(libdeflate_gzip_decompress(inflate, body.data(), body.size(), inflated.data(), inflated.size(),
                                       nullptr),
            LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(inflate);
  EXPECT_EQ(inflated, whole);

  const std::string plain = Exchange(GetRequest("/long"));
  EXPECT_THAT(plain, Not(HasSubstr("Content-Encoding")));
  EXPECT_THAT(plain, HasSubstr("\r\nVary: Accept-Encoding\r\n"));
  EXPECT_TRUE(plain.ends_with(whole));
  for (const char* path : {"/short", "/healthz"}) {
    EXPECT_THAT(Exchange("GET " + std::string(path) +
                         " HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"),
                Not(HasSubstr("Content-Encoding")))
        << path;
  }
}

TEST(HttpRequestTest, DecodesTheParametersOfItsQuery) {
  const Request request{.query = "a=1&a=2&search=team%2Da+b%26%3D&flag&empty=&bad=%zz%4&%61b=x=y"};
  EXPECT_EQ(request.parameter("a"), "1");
  EXPECT_EQ(request.parameter("search"), "team-a b&=");
  EXPECT_EQ(request.parameter("flag"), "");
  EXPECT_EQ(request.parameter("empty"), "");
  EXPECT_EQ(request.parameter("bad"), "%zz%4");
  EXPECT_EQ(request.parameter("ab"), "x=y");
  EXPECT_EQ(request.parameter("none"), "");
  EXPECT_EQ(Request{}.parameter("a"), "");
}

TEST_F(HttpServerTest, TheQueryIsNoPartOfThePath) {
  server_ = std::make_unique<HttpServer>();
  server_->Handle("/echo", [](const Request& request) {
    return Response{.body = request.path + " " + request.query + " " + request.parameter("b")};
  });
  ASSERT_TRUE(server_->Start().ok());
  EXPECT_TRUE(Exchange(GetRequest("/echo?a=1&b=%3f?")).ends_with("\r\n\r\n/echo a=1&b=%3f? ??"));
  EXPECT_TRUE(Exchange(GetRequest("http://x/echo?b=2")).ends_with("\r\n\r\n/echo b=2 2"));
  EXPECT_TRUE(Exchange(GetRequest("/echo")).ends_with("\r\n\r\n/echo  "));
}

TEST_F(HttpServerTest, HeadSendsTheLengthAndNoBody) {
  Start();
  const std::string answer = Exchange("HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(IsStatus(answer, 200)) << answer;
  EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 3\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, AnUnknownPathIsAnsweredWithTheKnownOnes) {
  Start();
  const std::string answer = Exchange(GetRequest("/metrix<script>"));
  EXPECT_TRUE(IsStatus(answer, 404)) << answer;
  EXPECT_THAT(answer, HasSubstr("\n  /echo\n  /healthz\n"));
  EXPECT_THAT(answer, Not(HasSubstr("script")));
}

TEST_F(HttpServerTest, OtherMethodsAreRefusedWithAllow) {
  Start();
  for (const std::string& method :
       std::vector<std::string>{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"}) {
    const std::string answer =
        Exchange(method + " /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(IsStatus(answer, 405)) << method << ": " << answer;
    EXPECT_THAT(answer, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  }
}

TEST_F(HttpServerTest, AnExceptionBecomesA500WithoutItsText) {
  Start();
  const std::string answer = Exchange(GetRequest("/throws"));
  EXPECT_TRUE(IsStatus(answer, 500)) << answer;
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
  EXPECT_TRUE(IsStatus(Exchange(GetRequest("/healthz")), 200));
}

TEST_F(HttpServerTest, Http10ClosesAndHttp11KeepsAlive) {
  Start();
  EXPECT_TRUE(IsStatus(Exchange("GET /healthz HTTP/1.0\r\n\r\n"), 200));

  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_THAT(client.ReadUntil("ok\n"), HasSubstr("200")) << i;
  }
  EXPECT_FALSE(client.closed());
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  const std::string answer =
      Exchange("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n" +
               GetRequest("/echo"));
  const size_t first = answer.find("HTTP/1.1 200");
  const size_t second = answer.find("HTTP/1.1 404");
  const size_t third = answer.find("HTTP/1.1 202");
  ASSERT_NE(third, std::string::npos) << answer;
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
}

TEST_F(HttpServerTest, TheAbsoluteFormOfTheTargetIsUnderstood) {
  Start();
  EXPECT_TRUE(IsStatus(Exchange(GetRequest("http://test/healthz?x")), 200));
  EXPECT_TRUE(IsStatus(Exchange(GetRequest("http://test")), 404));
}

TEST_F(HttpServerTest, GarbageIsRefusedAndTheServerGoesOn) {
  Start({.request_deadline = std::chrono::milliseconds(500)});
  for (const std::string& garbage :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"), std::string("GET\r\n\r\n"),
        std::string("GET /healthz HTTP/1.1\r\n\r\n"), std::string("GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n"),
        std::string("\r\n\r\n\r\n\r\n"), std::string(200, '\0') + "\r\n\r\n"}) {
    RawClient client(server_->port());
    client.Send(garbage);
    client.HalfClose();
    EXPECT_THAT(client.ReadToEnd(), Not(HasSubstr(" 200 "))) << garbage;
    EXPECT_TRUE(client.closed());
  }
  EXPECT_TRUE(IsStatus(Exchange(GetRequest("/healthz")), 200));
}

TEST_F(HttpServerTest, APortThatIsTakenIsNamed) {
  Start();
  HttpServer second({.port = server_->port()});
  const Status status = second.Start();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("listen on " + server_->address() + ": Address already in use"));
}

TEST_F(HttpServerTest, AFailedStartMayBeRepeatedAndAStoppedPortIsFreeAtOnce) {
  Start();
  HttpServer second({.port = server_->port()});
  ASSERT_FALSE(second.Start().ok());
  EXPECT_TRUE(IsStatus(Exchange(GetRequest("/healthz")), 200));
  server_->Stop();
  const Status status = second.Start();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(HttpServerAddressTest, RefusesWhatIsNoAddress) {
  for (const char* address : {"", "example.org", "localhost:80", "[::1]"}) {
    EXPECT_EQ(HttpServer({.address = address}).Start().code(), StatusCode::kInvalidArgument) << address;
  }
  EXPECT_EQ(HttpServer({.port = 65536}).Start().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(HttpServer({.address = "192.0.2.1"}).Start().ok());  // not this machine's
}

TEST(HttpServerAddressTest, ListensOnIpv6AndOnBothFamilies) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  HttpServer v6({.address = "::1"});
  v6.Handle("/healthz", [](const Request&) { return Response{.body = "six"}; });
  if (const Status status = v6.Start(); !status.ok()) GTEST_SKIP() << "no IPv6 here: " << status.ToString();
  EXPECT_EQ(v6.address(), "[::1]:" + std::to_string(v6.port()));
  const auto answer = Get("http://" + v6.address() + "/healthz", deadline);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->body, "six");

  HttpServer both({.address = "::"});
  ASSERT_TRUE(both.Start().ok());
  EXPECT_TRUE(Get("http://127.0.0.1:" + std::to_string(both.port()) + "/", deadline).ok());
  EXPECT_TRUE(Get("http://[::1]:" + std::to_string(both.port()) + "/", deadline).ok());
}

TEST(HttpServerAddressTest, StopsWithOpenConnectionsAndTwice) {
  HttpServer server;
  ASSERT_TRUE(server.Start().ok());
  RawClient idle(server.port());
  RawClient half(server.port());
  half.Send("GET /healthz HT");
  server.Stop();
  server.Stop();
  idle.ReadToEnd();
  half.ReadToEnd();
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(half.closed());
}

}  // namespace
}  // namespace lockstep::http
