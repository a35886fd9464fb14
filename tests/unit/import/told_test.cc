// No field is dropped in silence: whatever is changed in a sample, or added to it, shows in what comes out or
// in what is said.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "launcher/spec/quote.h"
#include "launcher/spec/scalar.h"
#include "launcher/spec/yaml_tree.h"
#include "tests/unit/import/support.h"

namespace lockstep::importer {
namespace {

using spec::Node;

class ToldTest : public ::testing::TestWithParam<std::filesystem::path> {
 protected:
  ToldTest() : text_(testing::TextOf(GetParam())) {
    size_t begin = 0;
    for (size_t end = 0; end != std::string::npos; begin = end + 1) {
      starts_.push_back(begin);
      end = text_.find('\n', begin);
    }
  }

  size_t OffsetOf(const Node& node) const {
    return starts_[static_cast<size_t>(node.mark.line - 1)] + static_cast<size_t>(node.mark.column - 1);
  }

  std::string text_;

 private:
  std::vector<size_t> starts_;  // of the lines; the samples are ASCII, so that a column is a byte
};

std::string NameOf(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  return info.param.stem().string();
}

struct Place {
  const Node* node;
  const Node* document;
  std::string path;
};

void Collect(const Node& node, const Node& document, const std::string& path, std::vector<Place>& places) {
  places.push_back({&node, &document, path});
  for (size_t i = 0; i < node.items.size(); ++i) {
    if (node.kind == Node::Kind::kList) {
      Collect(node.items[i], document, spec::PathTo(path, i), places);
    } else if (i % 2 == 1) {
      Collect(node.items[i], document, spec::PathTo(path, node.items[i - 1].text), places);
    }
  }
}

std::vector<Place> PlacesOf(const spec::YamlText& yaml) {
  std::vector<Place> places;
  for (const Node& document : yaml.documents) Collect(document, document, "", places);
  return places;
}

bool Within(const std::string& path, const std::string& outer) {
  return path.starts_with(outer) && (path.size() == outer.size() || outer.empty() ||
                                     path[outer.size()] == '.' || path[outer.size()] == '[');
}

// Whether a note says that the field went, or what it became: a note on the field itself, or one on what it
// is part of that is about all of it.
bool IsToldOf(const Place& place, const Imported& imported) {
  return std::any_of(imported.notes.begin(), imported.notes.end(), [&](const Note& note) {
    if (note.path.empty()) return note.line == place.document->mark.line;  // a document that was skipped
    if (place.path == note.path) return true;
    if (!Within(place.path, note.path)) return false;
    if (note.what.starts_with("there is no launcher's pod")) return true;
    // These say something of a part only.
    const std::string parent = note.path.ends_with(']') ? note.path.substr(0, note.path.rfind('[')) : "";
    if (note.path.ends_with("containers") || parent.ends_with("containers")) return false;
    if (note.path.ends_with("replicatedJobs") || note.path.ends_with("Master") ||
        note.path.ends_with("Worker"))
      return false;
    if (parent.ends_with("replicatedJobs") || parent.ends_with("tasks")) return note.left_out;
    return true;
  });
}

// Another value of the same type; the same text where the place is none that can be changed.
std::string Changed(const std::string& text, size_t at, const Node& node) {
  if (node.quoted) {
    if (text[at] != '"' && text[at] != '\'') return text;
    return std::string(text).insert(at + 1, "x");
  }
  const spec::ScalarValue value = spec::ResolvePlain(node.text);
  std::string other = node.text + "x";
  if (const auto* number = std::get_if<int64_t>(&value)) other = std::to_string(*number + 1);
  if (const auto* boolean = std::get_if<bool>(&value)) other = *boolean ? "false" : "true";
  return std::string(text).replace(at, node.text.size(), other);
}

bool SameOutcome(const Imported& a, const Imported& b) {
  return a.manifests == b.manifests && a.notes == b.notes && a.errors == b.errors;
}

TEST_P(ToldTest, EveryValueHasAnEffectOrIsToldOf) {
  const Imported before = testing::ImportText(text_);
  const spec::YamlText yaml = spec::ParseYaml(text_);
  int changes = 0;
  for (const Place& place : PlacesOf(yaml)) {
    if (place.node->kind != Node::Kind::kScalar) continue;
    const std::string changed = Changed(text_, OffsetOf(*place.node), *place.node);
    if (changed == text_) continue;
    ++changes;
    EXPECT_TRUE(!SameOutcome(before, testing::ImportText(changed)) || IsToldOf(place, before))
        << place.path << " (line " << place.node->mark.line << ") has no effect, and nothing is said of it";
  }
  EXPECT_GE(changes, 10);
}

TEST_P(ToldTest, EveryUnknownFieldIsKeptOrToldOf) {
  const spec::YamlText yaml = spec::ParseYaml(text_);
  int additions = 0;
  for (const Place& place : PlacesOf(yaml)) {
    if (place.node->kind != Node::Kind::kMap || place.node->items.empty()) continue;
    const size_t at = OffsetOf(*place.node);
    const bool flow = text_[at] == '{';
    const std::string added =
        flow ? "zzz: 7, " : "zzz: 7\n" + std::string(static_cast<size_t>(place.node->mark.column - 1), ' ');
    const Imported after = testing::ImportText(std::string(text_).insert(flow ? at + 1 : at, added));
    ++additions;
    const bool kept = after.manifests.find("zzz: 7") != std::string::npos ||
                      after.manifests.find("zzz: \"7\"") != std::string::npos;
    const std::string path = spec::PathTo(place.path, "zzz");
    EXPECT_TRUE(kept || IsToldOf({place.node, place.document, path}, after)) << path << " is lost in silence";
  }
  EXPECT_GE(additions, 5);
}

INSTANTIATE_TEST_SUITE_P(Each, ToldTest, ::testing::ValuesIn(testing::Samples()), NameOf);

}  // namespace
}  // namespace lockstep::importer
