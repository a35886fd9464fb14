#include "launcher/kube/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temporary_folder.h"

namespace lockstep::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFile[] = R"(apiVersion: v1
kind: Config
current-context: home
contexts:
- {name: home, context: {cluster: one, user: me, namespace: research}}
- {name: other, context: {cluster: two, user: robot}}
- {name: broken, context: {cluster: two, user: nobody}}
- {name: plugin, context: {cluster: two, user: plugin}}
clusters:
- {name: one, cluster: {server: "https://one:6443", certificate-authority: ca.pem}}
- {name: two, cluster: {server: "https://two", certificate-authority-data: "Q0VSVA==", tls-server-name: api}}
users:
- {name: me, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
- {name: robot, user: {tokenFile: token}}
- {name: plugin, user: {exec: {command: gcloud}}}
)";

class ConfigTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  std::string file_ = folder_.Write("config", kFile);
  std::string authority_ = folder_.Write("ca.pem", "AUTHORITY");
};

TEST_F(ConfigTest, TakesTheCurrentContext) {
  const auto config = LoadKubeconfig(file_);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->server, "https://one:6443");
  EXPECT_EQ(config->ca_pem, "AUTHORITY") << "relative to the file";
  EXPECT_EQ(config->client_certificate_pem, "cert");
  EXPECT_EQ(config->client_key_pem, "key");
  EXPECT_EQ(config->default_namespace, "research");
}

TEST_F(ConfigTest, TakesTheNamedContext) {
  const auto config = LoadKubeconfig(file_, "other");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->ca_pem, "CERT");
  EXPECT_EQ(config->server_name, "api");
  EXPECT_EQ(config->token_file, folder_.File("token"));
  EXPECT_EQ(config->default_namespace, "default");
}

TEST_F(ConfigTest, OfSeveralFilesTheFirstThatHasAnEntryCounts) {
  const std::string first = folder_.Write("first", R"(contexts:
- {name: other, context: {cluster: one, user: robot, namespace: mine}}
clusters:
- {name: one, cluster: {server: "https://first"}}
)");
  ::setenv("KUBECONFIG", (folder_.File("none") + ":" + first + "::" + file_).c_str(), 1);
  const auto named = FindConfig({}, "other");
  const auto current = FindConfig();
  const auto missing = FindConfig({}, "nope");
  ::setenv("KUBECONFIG", (folder_.File("none") + ":" + folder_.File("neither")).c_str(), 1);
  const auto nothing = FindConfig();
  ::unsetenv("KUBECONFIG");
  ASSERT_TRUE(named.ok()) << named.status().ToString();
  EXPECT_EQ(named->server, "https://first");
  EXPECT_EQ(named->default_namespace, "mine");
  EXPECT_EQ(named->token_file, folder_.File("token")) << "the user is the other file's";
  ASSERT_TRUE(current.ok()) << current.status().ToString();
  EXPECT_EQ(current->default_namespace, "research");
  EXPECT_EQ(current->server, "https://first");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(nothing.status().code(), StatusCode::kNotFound);
}

TEST_F(ConfigTest, SaysWhatIsMissing) {
  EXPECT_EQ(LoadKubeconfig(folder_.File("none")).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(LoadKubeconfig(file_, "away").status().message(), HasSubstr("has no context away"));
  EXPECT_THAT(LoadKubeconfig(file_, "broken").status().message(), HasSubstr("has no user nobody"));
  const Status plugin = LoadKubeconfig(file_, "plugin").status();
  EXPECT_EQ(plugin.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(plugin.message(), HasSubstr("exec"));
}

TEST_F(ConfigTest, NeverRepeatsWhatIsInTheFile) {
  for (const char* text : {"users: [{name: a, user: {token: very-secret}", "very-secret",
                           "token: very-secret\ntoken: b", "very-secret: \"\n"}) {
    const Status status = LoadKubeconfig(folder_.Write("bad", text)).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(status.message(), Not(HasSubstr("very-secret")));
  }
}

// The environment is the process's; this test alone touches it.
TEST_F(ConfigTest, TakesWhatAPodIsGiven) {
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(InClusterConfig(folder_.path()).status().code(), StatusCode::kFailedPrecondition);
  ::setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
  ::setenv("KUBERNETES_SERVICE_PORT", "443", 1);
  EXPECT_FALSE(InClusterConfig(folder_.path()).ok()) << "no token";
  folder_.Write("token", "abc");
  folder_.Write("ca.crt", "CA");
  folder_.Write("namespace", "research\n");
  const auto config = InClusterConfig(folder_.path());
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->server, "https://[fd00::1]:443");
  EXPECT_EQ(config->token_file, folder_.File("token"));
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->default_namespace, "research");
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  ::unsetenv("KUBERNETES_SERVICE_PORT");
}

}  // namespace
}  // namespace lockstep::kube
