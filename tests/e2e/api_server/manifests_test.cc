// The files of tests/testdata/manifests: an API server with the CustomResourceDefinition takes and refuses
// the same ones as the reader. A bad file that it takes all the same says so, and why, in a line "# cluster:
// accepted; …".

#include <gmock/gmock.h>

#include <chrono>

#include "launcher/http/session.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/yaml_tree.h"
#include "tests/e2e/api_server/api_server.h"

namespace lockstep::testing {
namespace {

using kube::Json;

// kubectl writes JSON anew, and 1e3 as the whole number that it is.
void WriteWholeNumbers(Json& value) {
  if (value.is_number_float() &&
      value.get<double>() == static_cast<double>(static_cast<int64_t>(value.get<double>())))
    value = static_cast<int64_t>(value.get<double>());
  if (!value.is_structured()) return;
  for (Json& inner : value) WriteWholeNumbers(inner);
}

// The templates' keys in one order: the server sorts them.
spec::TrainingJob WithSortedTemplates(spec::TrainingJob job) {
  for (spec::Role& role : job.roles) {
    if (!role.pod_template_json.empty()) role.pod_template_json = Json::parse(role.pod_template_json).dump();
  }
  return job;
}

class ManifestsOnApiServerTest : public ApiServerTest {
 protected:
  void SetUp() override {
    ApiServerTest::SetUp();
    if (!client_) return;
    auto session = http::Session::Make({.url = config_.server,
                                        .tls = {.authorities = config_.ca_pem,
                                                .client_certificate = config_.client_certificate_pem,
                                                .client_key = config_.client_key_pem,
                                                .skip_verification = config_.skip_verification}});
    ASSERT_TRUE(session.ok());
    session_ = *std::move(session);
  }

  // The text as it is, so that the server's own reader of YAML is part of the comparison; strict, as kubectl
  // is.
  http::HttpResponse DryRun(const std::string& space, const std::string& text) {
    const bool json =
        text.find_first_not_of(" \n") != std::string::npos && text[text.find_first_not_of(" \n")] == '{';
    http::SessionRequest request{
        .method = "POST",
        .target = kube::PathOf(kube::kTrainingJobs, {.space = space}) + "?dryRun=All&fieldValidation=Strict",
        .body = json ? Written(text) : text,
        .content_type = json ? "application/json" : "application/yaml",
        .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30)};
    if (!config_.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + config_.token);
    auto response = session_->Send(request);
    EXPECT_TRUE(response.ok()) << response.status().ToString();
    return response.ok() ? *response : http::HttpResponse{};
  }

  static std::string Written(const std::string& text) {
    Json value = Json::parse(text);
    WriteWholeNumbers(value);
    return value.dump();
  }

  std::unique_ptr<http::Session> session_;
};

TEST_F(ManifestsOnApiServerTest, GoodOnesAreTaken) {
  int compared = 0;
  for (const auto& file : YamlFiles("tests/testdata/manifests/good")) {
    const std::string text = TextOf(file);
    const spec::Manifests read = spec::ReadManifests(text, file.string());
    ASSERT_TRUE(read.errors.empty()) << read.errors.front().ToString();
    // Of several documents kubectl makes several requests.
    if (spec::ParseYaml(text).documents.size() != 1) continue;
    const std::string space = read.jobs.front().namespace_name;
    if (space != "default") {
      Json object;
      object["metadata"]["name"] = space;
      const auto made = client_->Create(kube::kNamespaces, "", object);
      ASSERT_TRUE(made.ok() || made.failed_with(kube::Reason::kAlreadyExists)) << made.error().message;
    }
    const http::HttpResponse response = DryRun(space, text);
    EXPECT_EQ(response.status, 201) << file << ": " << response.body;
    ++compared;
  }
  EXPECT_GE(compared, 60);
}

TEST_F(ManifestsOnApiServerTest, BadOnesAreRefused) {
  int refused = 0;
  for (const auto& file : YamlFiles("tests/testdata/manifests/bad")) {
    const std::string text = TextOf(file);
    ASSERT_FALSE(spec::ReadManifests(text, file.string()).errors.empty()) << file;
    const http::HttpResponse response = DryRun("default", text);
    if (text.find("\n# cluster: accepted; ") != std::string::npos) {
      EXPECT_EQ(response.status, 201) << file << " is refused after all: " << response.body;
      continue;
    }
    // By its content, not by the server's state or ours.
    EXPECT_TRUE(response.status == 400 || response.status == 422 || response.status == 404)
        << file << ": " << response.status << ' ' << response.body;
    ++refused;
  }
  EXPECT_GE(refused, 120);
}

// The defaults of the server's are the reader's.
TEST_F(ManifestsOnApiServerTest, DefaultsChangeNothing) {
  for (const auto& file : YamlFiles("tests/testdata/manifests/good")) {
    const std::string text = TextOf(file);
    const spec::Manifests read = spec::ReadManifests(text, file.string());
    if (spec::ParseYaml(text).documents.size() != 1) continue;
    const http::HttpResponse response = DryRun(read.jobs.front().namespace_name, text);
    if (response.status != 201) continue;  // said above
    Json stored = Json::parse(response.body);
    stored["metadata"].erase("managedFields");
    const spec::Manifests again = spec::ReadManifests(stored.dump(), file.string());
    ASSERT_TRUE(again.errors.empty()) << again.errors.front().ToString();
    EXPECT_TRUE(WithSortedTemplates(again.jobs.front()) == WithSortedTemplates(read.jobs.front())) << file;
  }
}

}  // namespace
}  // namespace lockstep::testing
