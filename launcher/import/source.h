#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "launcher/import/import.h"
#include "launcher/spec/yaml_tree.h"

namespace lockstep::importer {

using Json = nlohmann::ordered_json;

class Document;

// A field of a manifest, which may be absent. Reading what it holds takes it; what is not taken in the end is
// told as left out. A view: the Document outlives it.
class Field {
 public:
  // Given, and not null.
  bool present() const;
  bool is_map() const { return node_ != nullptr && node_->kind == spec::Node::Kind::kMap; }
  bool is_list() const { return node_ != nullptr && node_->kind == spec::Node::Kind::kList; }
  const std::string& path() const { return path_; }

  // Absent where this is no mapping, or has no such key.
  Field operator[](std::string_view key) const;
  // Of a list; empty for anything else. (A list or mapping with nothing in it is taken by asking.)
  std::vector<Field> Items() const;
  // Of a mapping, in the order of the text; empty for anything else.
  std::vector<std::pair<std::string, Field>> Entries() const;

  // Each takes the field. Empty where it is absent, and where it is something else: that is told.
  std::optional<std::string> Text() const;
  std::optional<int64_t> Integer() const;
  std::optional<bool> Boolean() const;
  std::vector<std::string> Texts() const;  // of a list of scalars
  Json Value() const;                      // with all below it; null where absent

  // The text of a scalar, untaken; empty for anything else.
  std::string_view Peek() const;

  // Each adds a note to the field. Say() does not take it; Explain() and LeaveOut() take it with all below
  // it.
  void Say(std::string what, bool left_out = false) const;
  void Explain(std::string what) const;
  void LeaveOut(std::string why) const;

 private:
  friend class Document;
  Field(Document* document, const spec::Node* node, std::string path, int line)
      : document_(document), node_(node), path_(std::move(path)), line_(line) {}

  void Add(std::string what, bool left_out) const;
  void Take() const;
  void TakeAll(const spec::Node& node) const;
  Json ToJson(const spec::Node& node) const;

  Document* document_;
  const spec::Node* node_;  // null: absent
  std::string path_;
  int line_;
};

// One document of a file. Not copyable, since fields point to it; `root` and `notes` outlive it.
class Document {
 public:
  Document(const spec::Node& root, std::string file, std::vector<Note>* notes)
      : root_node_(&root), file_(std::move(file)), notes_(notes) {}
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Field root() { return {this, root_node_, "", root_node_->mark.line}; }
  int line() const { return root_node_->mark.line; }
  const std::string& file() const { return file_; }
  // Whether anything was.
  bool taken() const { return !taken_.empty(); }

  // A note on each field that was never taken: on the mapping or list, where nothing in it was.
  void TellTheRest();

 private:
  friend class Field;
  bool AnyTaken(const spec::Node& node) const;
  void TellTheRest(const spec::Node& node, const std::string& path, int line);

  const spec::Node* root_node_;
  std::string file_;
  std::vector<Note>* notes_;
  std::unordered_set<const spec::Node*> taken_;
};

}  // namespace lockstep::importer
