#include "launcher/spec/crd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "launcher/spec/enums.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using nlohmann::json;

constexpr char kFile[] = "manifests/crd/trainingjobs.lockstep.dev.yaml";

json Parsed() { return testing::AsJson(ParseYaml(CustomResourceDefinition()).documents.at(0)); }
json SpecSchema() {
  return Parsed()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
}

// LOCKSTEP_UPDATE_DOCS=1 writes it anew.
TEST(CrdTest, TheFileIsWhatTheTableOfFieldsGives) {
  const auto path = testing::InSource(kFile);
  if (std::getenv("LOCKSTEP_UPDATE_DOCS") != nullptr) std::ofstream(path) << CustomResourceDefinition();
  EXPECT_EQ(testing::TextOf(path), CustomResourceDefinition()) << "run with LOCKSTEP_UPDATE_DOCS=1";
}

TEST(CrdTest, IsSmallEnoughForKubectlApply) {
  // kubectl apply keeps a copy in an annotation, and annotations have 256 KiB.
  EXPECT_LE(CustomResourceDefinition().size(), 200u << 10);
  EXPECT_GE(CustomResourceDefinition().size(), 20u << 10);
}

TEST(CrdTest, DescribesEveryField) {
  int fields = 0;
  const std::function<void(const json&, const std::string&)> walk = [&](const json& node,
                                                                        const std::string& path) {
    const json properties = node.value("properties", json::object());
    for (const auto& [name, field] : properties.items()) {
      ++fields;
      EXPECT_GE(field.value("description", "").size(), 8u) << path << "." << name;
      walk(field.contains("items") ? field["items"] : field, path + "." + name);
    }
  };
  const json schema = Parsed()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  walk(schema["properties"]["spec"], "spec");
  walk(schema["properties"]["status"], "status");
  EXPECT_GT(fields, 150);
}

TEST(CrdTest, DefaultsOnlyWhatAlwaysApplies) {
  const json spec = SpecSchema();
  EXPECT_EQ(spec["suspend"]["default"], false);
  EXPECT_EQ(spec["runPolicy"]["properties"]["maxRestarts"]["default"], 3);
  EXPECT_EQ(spec["roles"]["items"]["properties"]["replicas"]["default"], 1);
  // These exclude roles, other optimizers, or a pod's own default.
  EXPECT_FALSE(spec["replicas"].contains("default"));
  EXPECT_FALSE(spec["trainer"]["properties"]["optimizer"]["properties"]["momentum"].contains("default"));
  EXPECT_FALSE(spec["http"]["properties"]["address"].contains("default"));
}

TEST(CrdTest, KeepsTemplatesAsTheyAre) {
  EXPECT_EQ(SpecSchema()["template"]["x-kubernetes-preserve-unknown-fields"], true);
  EXPECT_EQ(SpecSchema()["roles"]["items"]["properties"]["template"]["x-kubernetes-preserve-unknown-fields"],
            true);
}

TEST(CrdTest, IsReadByKubectlAsItIsMeant) {
  const json crd = Parsed();
  EXPECT_EQ(crd["kind"], "CustomResourceDefinition");
  EXPECT_EQ(crd["spec"]["names"]["shortNames"], json({"tjob"}));
  EXPECT_TRUE(crd["spec"]["versions"][0]["subresources"].contains("status"));
  std::vector<std::string> columns;
  for (const json& column : crd["spec"]["versions"][0]["additionalPrinterColumns"])
    columns.push_back(column["name"]);
  EXPECT_THAT(columns, ::testing::ElementsAre("Phase", "Ready", "Step", "Progress", "Throughput", "ETA",
                                              "Restarts", "Age", "Loss", "Strategy"));
}

}  // namespace
}  // namespace lockstep::spec
