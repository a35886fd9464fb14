#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/spec/manifest.h"
#include "launcher/spec/yaml_tree.h"

// What the tests of the spec folder share.
namespace lockstep::spec::testing {

// "tests/testdata/manifests/good" and the like.
std::filesystem::path InSource(std::string_view path);
// Every *.yaml of a folder of the sources, sorted.
std::vector<std::filesystem::path> YamlFiles(std::string_view folder);
std::string TextOf(const std::filesystem::path& file);

// The one job of a manifest that must be right; a test failure with its errors otherwise.
TrainingJob JobOf(std::string_view text);
// The errors of a text, "LINE:COLUMN: PATH: WHAT".
std::vector<std::string> ErrorsOf(std::string_view text);
// A manifest named x with the given lines under spec, each indented by two spaces already.
std::string WithSpec(std::string_view spec);
// One with a valid trainer beside `spec`.
std::string WithTrainer(std::string_view spec);

// A document as JSON, as kubectl would send it.
nlohmann::json AsJson(const Node& node);

// Where `value` breaks `schema`, by the words of draft 2020-12 that Schema() uses; empty if nowhere. Throws
// std::logic_error on a word that it does not know, so that the schema cannot outgrow it.
std::string BreaksSchema(const nlohmann::json& value, const nlohmann::json& schema,
                         const std::string& path = "");

}  // namespace lockstep::spec::testing
