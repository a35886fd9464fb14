#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/kube/client.h"

namespace lockstep::testing {

// A real API server with the CustomResourceDefinition of the sources, and a namespace of the test's own.
class ApiServerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::unique_ptr<kube::Client> Connect(kube::ClientOptions options = {.requests_per_second = 0}) const;

  kube::Config config_;
  std::unique_ptr<kube::Client> client_;
  std::string space_;
};

// Every *.yaml of a folder of the sources, sorted.
std::vector<std::filesystem::path> YamlFiles(const std::string& folder);
std::string TextOf(const std::filesystem::path& file);

}  // namespace lockstep::testing
