#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launcher/kube/client.h"
#include "tests/unit/kube/scripted_server.h"

namespace lockstep::kube {
namespace {

using testing::ScriptedAnswer;
using testing::ScriptedServer;
using testing::SeenRequest;

class TlsTest : public ::testing::Test {
 protected:
  static Answer<std::string> Ask(const Config& config) {
    auto client = Client::Make(config);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return (*client)->GetText("/version");
  }

  ScriptedServer server_{[](const SeenRequest&, int) { return ScriptedAnswer{}; }, true, true};
};

TEST_F(TlsTest, ShowsItsCertificateToAServerOfItsAuthority) {
  const auto answer = Ask(server_.config());
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

TEST_F(TlsTest, KeepsTheConnection) {
  const auto client = server_.Connect();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(client->Get(kPods, {.space = "default", .name = "a"}).ok());
  const Json large = {{"data", {{"key", std::string(300'000, 'x')}}}};
  EXPECT_TRUE(client->Create(kConfigMaps, "default", large).ok());
}

TEST_F(TlsTest, IsRefusedWithoutItsCertificate) {
  Config config = server_.config();
  config.client_certificate_pem = config.client_key_pem = "";
  EXPECT_TRUE(Ask(config).failed_with(Reason::kUnreachable));
}

TEST_F(TlsTest, TrustsNoOtherAuthority) {
  Config config = server_.config();
  config.ca_pem = testing::MakeCertificates().authority;
  EXPECT_TRUE(Ask(config).failed_with(Reason::kUnreachable));
  config.ca_pem = "";
  EXPECT_TRUE(Ask(config).failed_with(Reason::kUnreachable));
  EXPECT_TRUE(server_.requests().empty()) << "nothing is sent before the server is known";
}

TEST_F(TlsTest, WantsTheServersName) {
  Config config = server_.config();
  config.server_name = "api.test";
  EXPECT_TRUE(Ask(config).ok());
  config.server_name = "somebody.else";
  EXPECT_TRUE(Ask(config).failed_with(Reason::kUnreachable));
  config.skip_verification = true;
  EXPECT_TRUE(Ask(config).ok());
}

TEST_F(TlsTest, RefusesKeysThatAreNone) {
  Config config = server_.config();
  config.client_key_pem = testing::MakeCertificates().client_key;
  Status status = Client::Make(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("not the one of the client certificate"));
  config.client_key_pem = "very-secret";
  status = Client::Make(config).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), ::testing::Not(::testing::HasSubstr("very-secret")));
  config = server_.config();
  config.ca_pem += "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  EXPECT_FALSE(Client::Make(config).ok());
}

}  // namespace
}  // namespace lockstep::kube
