#include "launcher/http/key_value_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <mutex>

#include "tests/unit/http/raw_client.h"

namespace lockstep::http {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class KeyValueServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = KeyValueServer::Start({.get = [this](const std::string& key) { return Get(key); },
                                         .put =
                                             [this](const std::string& key, const std::string& value) {
                                               const std::lock_guard lock(mutex_);
                                               values_[key] = value;
                                               return Status();
                                             },
                                         .clients = 2});
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
  }

  Result<std::string> Get(const std::string& key) {
    if (key == "wait/forever") opened_.get_future().wait();
    if (key == "broken/store") return Unavailable("gone");
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return NotFound("not there");
    return found->second;
  }

  std::string Ask(const std::string& line, const std::string& body = "") {
    RawClient client(server_->port());
    client.Send(line + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.ReadToEnd();
  }

  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::promise<void> opened_;
  std::unique_ptr<KeyValueServer> server_;
};

TEST_F(KeyValueServerTest, GivesWhatItWasGiven) {
  EXPECT_THAT(Ask("GET /global_/0"), StartsWith("HTTP/1.1 404"));
  const std::string value("a\0\xff\r\n", 5);
  EXPECT_THAT(Ask("PUT /global_/0", value), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /global_/0"), EndsWith("\r\n\r\n" + value));
  EXPECT_THAT(Ask("GET /local_/0"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask("DELETE /global_/0"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask("GET /broken/store"), StartsWith("HTTP/1.1 503"));
}

TEST_F(KeyValueServerTest, AWaitingClientHoldsUpNobody) {
  RawClient waits(server_->port());
  waits.Send("GET /wait/forever HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(Ask("PUT /wait/forever", "come"), StartsWith("HTTP/1.1 200"));
  opened_.set_value();
  EXPECT_THAT(waits.ReadToEnd(), EndsWith("come"));
}

TEST_F(KeyValueServerTest, RefusesWhatIsNoKeyAndWhatIsTooMuch) {
  for (const std::string path : {"/", "/a", "/a/", "//a", "/a/b/c", "*"}) {
    EXPECT_THAT(Ask("GET " + path), StartsWith("HTTP/1.1 400")) << path;
  }
  EXPECT_THAT(Ask("POST /a/b", "c"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(Ask("GET /a/" + std::string(64 << 10, 'k')), AnyOf(IsEmpty(), HasSubstr(" 4")));
  EXPECT_THAT(Ask("PUT /a/b", std::string((1 << 20) + 1, 'v')), IsEmpty());
  EXPECT_THAT(Ask("GET /a/b"), StartsWith("HTTP/1.1 404"));
}

}  // namespace
}  // namespace lockstep::http
