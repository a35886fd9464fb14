#include "launcher/import/source.h"

#include <algorithm>
#include <variant>

#include "launcher/spec/quote.h"
#include "launcher/spec/scalar.h"

namespace lockstep::importer {

using spec::Node;

namespace {

constexpr char kLeftOut[] = "no equivalent; left out";

bool IsNull(const Node& node) {
  return node.kind == Node::Kind::kScalar && !node.quoted &&
         std::holds_alternative<spec::Null>(spec::ResolvePlain(node.text));
}

// Not only nulls, which are the same as nothing. (An empty list or mapping may well mean something.)
bool HoldsAnything(const Node& node) {
  if (node.kind == Node::Kind::kScalar) return !IsNull(node);
  const size_t step = node.kind == Node::Kind::kMap ? 2 : 1;
  for (size_t i = step - 1; i < node.items.size(); i += step) {
    if (HoldsAnything(node.items[i])) return true;
  }
  return node.items.empty();
}

}  // namespace

bool Field::present() const { return node_ != nullptr && !IsNull(*node_); }

Field Field::operator[](std::string_view key) const {
  const std::string path = spec::PathTo(path_, key);
  if (!is_map()) return {document_, nullptr, path, line_};
  for (size_t i = 0; i + 1 < node_->items.size(); i += 2) {
    if (node_->items[i].text == key)
      return {document_, &node_->items[i + 1], path, node_->items[i].mark.line};
  }
  return {document_, nullptr, path, line_};
}

std::vector<Field> Field::Items() const {
  std::vector<Field> items;
  if (!is_list()) return items;
  if (node_->items.empty()) Take();
  for (size_t i = 0; i < node_->items.size(); ++i) {
    items.push_back(Field(document_, &node_->items[i], spec::PathTo(path_, i), node_->items[i].mark.line));
  }
  return items;
}

std::vector<std::pair<std::string, Field>> Field::Entries() const {
  std::vector<std::pair<std::string, Field>> entries;
  if (!is_map()) return entries;
  if (node_->items.empty()) Take();
  for (size_t i = 0; i + 1 < node_->items.size(); i += 2) {
    const Node& key = node_->items[i];
    entries.emplace_back(
        key.text, Field(document_, &node_->items[i + 1], spec::PathTo(path_, key.text), key.mark.line));
  }
  return entries;
}

std::optional<std::string> Field::Text() const {
  if (!present()) return std::nullopt;
  if (node_->kind != Node::Kind::kScalar) {
    LeaveOut("is no string; left out");
    return std::nullopt;
  }
  Take();
  return node_->text;
}

std::optional<int64_t> Field::Integer() const {
  if (!present()) return std::nullopt;
  if (node_->kind == Node::Kind::kScalar && !node_->quoted) {
    const spec::ScalarValue value = spec::ResolvePlain(node_->text);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      Take();
      return *number;
    }
  }
  LeaveOut("is no whole number; left out");
  return std::nullopt;
}

std::optional<bool> Field::Boolean() const {
  if (!present()) return std::nullopt;
  if (node_->kind == Node::Kind::kScalar && !node_->quoted) {
    const spec::ScalarValue value = spec::ResolvePlain(node_->text);
    if (const auto* boolean = std::get_if<bool>(&value)) {
      Take();
      return *boolean;
    }
  }
  LeaveOut("is neither true nor false; left out");
  return std::nullopt;
}

std::vector<std::string> Field::Texts() const {
  std::vector<std::string> texts;
  if (!present()) return texts;
  if (!is_list()) {
    LeaveOut("is no list; left out");
    return texts;
  }
  Take();
  for (const Field& item : Items()) {
    if (std::optional<std::string> text = item.Text()) texts.push_back(std::move(*text));
  }
  return texts;
}

Json Field::Value() const {
  if (!present()) return {};
  TakeAll(*node_);
  return ToJson(*node_);
}

std::string_view Field::Peek() const {
  return present() && node_->kind == Node::Kind::kScalar ? std::string_view(node_->text) : std::string_view();
}

void Field::Say(std::string what, bool left_out) const { Add(std::move(what), left_out); }

void Field::Explain(std::string what) const {
  if (node_ != nullptr) TakeAll(*node_);
  Add(std::move(what), false);
}

void Field::LeaveOut(std::string why) const {
  if (node_ != nullptr) TakeAll(*node_);
  Add(std::move(why), true);
}

void Field::Add(std::string what, bool left_out) const {
  document_->notes_->push_back({document_->file_, line_, path_, std::move(what), left_out});
}

void Field::Take() const { document_->taken_.insert(node_); }

void Field::TakeAll(const Node& node) const {
  document_->taken_.insert(&node);
  for (const Node& item : node.items) TakeAll(item);
}

Json Field::ToJson(const Node& node) const {
  switch (node.kind) {
    case Node::Kind::kList: {
      Json list = Json::array();
      for (const Node& item : node.items) list.push_back(ToJson(item));
      return list;
    }
    case Node::Kind::kMap: {
      Json map = Json::object();
      for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
        if (!IsNull(node.items[i + 1])) map[node.items[i].text] = ToJson(node.items[i + 1]);
      }
      return map;
    }
    case Node::Kind::kScalar:
      break;
  }
  if (node.quoted) return node.text;
  const spec::ScalarValue value = spec::ResolvePlain(node.text);
  if (std::holds_alternative<spec::Null>(value)) return {};
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* ambiguous = std::get_if<spec::Ambiguous>(&value)) {
    Say(spec::Quoted(node.text) + " is " + ambiguous->why + "; taken for the string");
  }
  return node.text;
}

bool Document::AnyTaken(const Node& node) const {
  return taken_.contains(&node) || std::any_of(node.items.begin(), node.items.end(),
                                               [this](const Node& item) { return AnyTaken(item); });
}

void Document::TellTheRest() { TellTheRest(*root_node_, "", root_node_->mark.line); }

void Document::TellTheRest(const Node& node, const std::string& path, int line) {
  if (!HoldsAnything(node) || (taken_.contains(&node) && node.items.empty())) return;
  if (!AnyTaken(node)) {
    notes_->push_back({file_, line, path, kLeftOut, true});
    return;
  }
  if (node.kind == Node::Kind::kMap) {
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const Node& key = node.items[i];
      TellTheRest(node.items[i + 1], spec::PathTo(path, key.text), key.mark.line);
    }
  } else if (node.kind == Node::Kind::kList) {
    for (size_t i = 0; i < node.items.size(); ++i)
      TellTheRest(node.items[i], spec::PathTo(path, i), node.items[i].mark.line);
  }
}

}  // namespace lockstep::importer
