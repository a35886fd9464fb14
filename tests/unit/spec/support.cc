#include "tests/unit/spec/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "launcher/spec/scalar.h"
#include "tests/paths.h"

namespace lockstep::spec::testing {

std::filesystem::path InSource(std::string_view path) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / path;
}

std::vector<std::filesystem::path> YamlFiles(std::string_view folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(InSource(folder))) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string TextOf(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  EXPECT_TRUE(stream.is_open()) << file;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> ErrorsOf(std::string_view text) {
  std::vector<std::string> errors;
  for (const Diagnostic& error : ReadManifests(text, "").errors) errors.push_back(error.ToString().substr(1));
  return errors;
}

TrainingJob JobOf(std::string_view text) {
  Manifests manifests = ReadManifests(text, "job.yaml");
  for (const Diagnostic& error : manifests.errors) ADD_FAILURE() << error.ToString();
  EXPECT_EQ(manifests.jobs.size(), 1u);
  return manifests.jobs.empty() ? TrainingJob{} : manifests.jobs[0];
}

std::string WithSpec(std::string_view spec) {
  return "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\nspec:\n" +
         std::string(spec);
}

std::string WithTrainer(std::string_view spec) {
  return WithSpec(std::string(spec) + "\n  trainer: {model: {layers: [{type: Dense, units: 10}]}}\n");
}

nlohmann::json AsJson(const Node& node) {
  using Json = nlohmann::json;
  if (node.kind == Node::Kind::kList) {
    Json list = Json::array();
    for (const Node& item : node.items) list.push_back(AsJson(item));
    return list;
  }
  if (node.kind == Node::Kind::kMap) {
    Json object = Json::object();
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      // The API server drops fields that are null.
      Json value = AsJson(node.items[i + 1]);
      if (!value.is_null()) object[node.items[i].text] = std::move(value);
    }
    return object;
  }
  if (node.quoted) return node.text;
  const ScalarValue value = ResolvePlain(node.text);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* text = std::get_if<std::string_view>(&value)) return std::string(*text);
  if (std::holds_alternative<Null>(value)) return nullptr;
  return Json::object({{"unreadable", node.text}});
}

}  // namespace lockstep::spec::testing
