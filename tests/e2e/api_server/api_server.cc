#include "tests/e2e/api_server/api_server.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "launcher/http/session.h"
#include "launcher/spec/crd.h"
#include "tests/paths.h"

namespace lockstep::testing {

namespace {

using kube::Json;

bool IsEstablished(const Json& definition) {
  for (const Json& condition :
       definition.value("status", Json::object()).value("conditions", Json::array())) {
    if (condition["type"] == "Established" && condition["status"] == "True") return true;
  }
  return false;
}

// By server-side apply, which takes YAML.
void InstallDefinition(const kube::Config& config) {
  auto session = http::Session::Make({.url = config.server,
                                      .tls = {.authorities = config.ca_pem,
                                              .client_certificate = config.client_certificate_pem,
                                              .client_key = config.client_key_pem,
                                              .skip_verification = config.skip_verification}});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  http::SessionRequest request{
      .method = "PATCH",
      .target = kube::PathOf(kube::kCustomResourceDefinitions, {.name = "trainingjobs.lockstep.dev"}) +
                "?fieldManager=test&force=true",
      .body = spec::CustomResourceDefinition(),
      .content_type = "application/apply-patch+yaml",
      .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30)};
  if (!config.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + config.token);
  const auto response = (*session)->Send(request);
  ASSERT_TRUE(response.ok()) << response.status().ToString();
  ASSERT_TRUE(response->status == 200 || response->status == 201) << response->body;
}

}  // namespace

void ApiServerTest::SetUp() {
  const char* path = std::getenv("LOCKSTEP_TEST_KUBECONFIG");
  if (path == nullptr) GTEST_SKIP() << "no API server: ./dev e2e makes one";
  auto config = kube::LoadKubeconfig(path);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  config_ = *config;
  client_ = Connect();
  InstallDefinition(config_);
  for (int tries = 0;; ++tries) {
    const auto definition =
        client_->Get(kube::kCustomResourceDefinitions, {.name = "trainingjobs.lockstep.dev"});
    if (definition.ok() && IsEstablished(*definition) &&
        client_->List(kube::kTrainingJobs, {}, [](Json&) {}).ok())
      break;
    ASSERT_LT(tries, 300);
    client_->Sleep(std::chrono::milliseconds(50));
  }
  space_ = "test-" + std::to_string(std::random_device{}());
  Json space;
  space["metadata"]["name"] = space_;
  const auto created = client_->Create(kube::kNamespaces, "", space);
  ASSERT_TRUE(created.ok()) << created.error().message;
}

void ApiServerTest::TearDown() {
  if (client_ && !space_.empty()) (void)client_->Delete(kube::kNamespaces, {.name = space_});
}

std::unique_ptr<kube::Client> ApiServerTest::Connect(kube::ClientOptions options) const {
  auto client = kube::Client::Make(config_, std::move(options));
  EXPECT_TRUE(client.ok());
  return *std::move(client);
}

std::vector<std::filesystem::path> YamlFiles(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(LOCKSTEP_SOURCE_DIR) / folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TextOf(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace lockstep::testing
