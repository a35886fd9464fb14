#include "launcher/spec/yaml_tree.h"

#include <yaml.h>

#include <optional>
#include <unordered_map>
#include <utility>

#include "launcher/spec/manifest.h"
#include "launcher/spec/quote.h"

namespace lockstep::spec {

namespace {

Mark MarkOf(const yaml_mark_t& mark) {
  return {static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1};
}

std::string_view View(const yaml_char_t* text, size_t size) {
  return {reinterpret_cast<const char*>(text), size};
}

class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { yaml_event_delete(&event_); }

  yaml_event_t* get() { return &event_; }
  const yaml_event_t* operator->() const { return &event_; }
  Mark mark() const { return MarkOf(event_.start_mark); }

 private:
  yaml_event_t event_{};
};

class Builder {
 public:
  explicit Builder(std::string_view text) {
    if (yaml_parser_initialize(&parser_) == 0) {
      Fail({1, 1}, "out of memory");
      return;
    }
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder() { yaml_parser_delete(&parser_); }

  YamlText Build() {
    while (!failed_ && !done_) {
      Event event;
      if (yaml_parser_parse(&parser_, event.get()) == 0) {
        FailSyntax();
      } else {
        Take(event);
      }
    }
    return std::move(result_);
  }

 private:
  void Take(const Event& event) {
    switch (event->type) {
      case YAML_STREAM_END_EVENT:
        done_ = true;
        return;
      case YAML_DOCUMENT_START_EVENT:
        if (const auto* version = event->data.document_start.version_directive;
            version != nullptr && (version->major != 1 || version->minor != 1)) {
          return Fail(event.mark(),
                      "a %YAML directive is refused by kubectl unless it says 1.1; leave it out");
        }
        if (event->data.document_start.implicit == 0) marker_line_ = MarkOf(event->end_mark).line;
        Count(event.mark());  // empty ones cost time as well
        return;
      case YAML_ALIAS_EVENT:
        return Fail(event.mark(), "an alias (*) is not read; write the value out");
      case YAML_SCALAR_EVENT:
        return Scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        return Open(event, Node::Kind::kList, event->data.sequence_start.anchor,
                    event->data.sequence_start.tag);
      case YAML_MAPPING_START_EVENT:
        return Open(event, Node::Kind::kMap, event->data.mapping_start.anchor, event->data.mapping_start.tag);
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        return Close();
      default:
        return;
    }
  }

  void Scalar(const Event& event) {
    const auto& scalar = event->data.scalar;
    const bool plain = scalar.style == YAML_PLAIN_SCALAR_STYLE;
    // An empty document is one plain empty scalar.
    if (open_.empty() && plain && scalar.length == 0 && scalar.tag == nullptr && scalar.anchor == nullptr)
      return;
    if (!Admit(event.mark(), scalar.anchor, scalar.tag)) return;
    Node node;
    node.mark = event.mark();
    node.quoted = !plain;
    node.text = View(scalar.value, scalar.length);
    Add(std::move(node));
  }

  void Open(const Event& event, Node::Kind kind, const yaml_char_t* anchor, const yaml_char_t* tag) {
    if (!Admit(event.mark(), anchor, tag)) return;
    if (open_.size() == kMaxDepth) {
      return Fail(event.mark(),
                  "lists and mappings are nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    if (!open_.empty() && open_.back().kind == Node::Kind::kMap && open_.back().items.size() % 2 == 0) {
      return Fail(event.mark(), "a list or mapping is no key; a key is a string");
    }
    Node node;
    node.kind = kind;
    node.mark = event.mark();
    open_.push_back(std::move(node));
  }

  void Close() {
    Node node = std::move(open_.back());
    open_.pop_back();
    node.items.shrink_to_fit();
    if (node.kind == Node::Kind::kMap) FindDuplicates(node);
    Add(std::move(node));
  }

  void Add(Node node) {
    if (open_.empty()) {
      result_.documents.push_back(std::move(node));
    } else {
      open_.back().items.push_back(std::move(node));
    }
  }

  bool Admit(Mark mark, const yaml_char_t* anchor, const yaml_char_t* tag) {
    if (anchor != nullptr) {
      Fail(mark, "an anchor (&) is not read; write the value out where it is needed");
    } else if (tag != nullptr) {
      Fail(mark, "a tag (!) is not read; quote a value to make it a string");
    } else if (open_.empty() && mark.line == marker_line_) {
      // kubectl drops what follows the marker on its line.
      Fail(mark, "text after --- on its line is lost on kubectl; begin the document on the next line");
    }
    return !failed_ && Count(mark);
  }

  bool Count(Mark mark) {
    if (++nodes_ > kMaxNodes)
      Fail(mark, "more than " + std::to_string(kMaxNodes) + " values in one file; split it");
    return !failed_;
  }

  void FindDuplicates(const Node& map) {
    std::unordered_map<std::string_view, Mark> seen;
    seen.reserve(map.items.size() / 2);
    for (size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const Node& key = map.items[i];
      if (result_.errors.size() > kMaxDiagnostics) return;
      if (!key.quoted && key.text == "<<") {
        result_.errors.push_back(
            {key.mark, PathTo(PathHere(), key.text), "a merge key is not read; write the fields out"});
        continue;
      }
      const auto [first, added] = seen.emplace(key.text, key.mark);
      if (added) continue;
      result_.errors.push_back(
          {key.mark, PathTo(PathHere(), key.text),
           "is here twice, first on line " + std::to_string(first->second.line) + "; keep one of them"});
    }
  }

  // Of what is being added to the innermost open node.
  std::string PathHere() const {
    std::string path;
    for (const Node& node : open_) {
      if (node.kind == Node::Kind::kList) {
        path = PathTo(path, node.items.size());
      } else if (node.items.size() % 2 == 1) {
        path = PathTo(path, node.items.back().text);
      }
    }
    return path;
  }

  void Fail(Mark mark, std::string what) {
    failed_ = true;
    result_.errors.push_back({mark, "", std::move(what)});
  }

  void FailSyntax() {
    switch (parser_.error) {
      case YAML_MEMORY_ERROR:
        return Fail({1, 1}, "out of memory");
      case YAML_READER_ERROR:
        return Fail(MarkOf(parser_.mark), std::string("not UTF-8 text (byte ") +
                                              std::to_string(parser_.problem_offset + 1) + ": " +
                                              parser_.problem + "); save the file as UTF-8");
      default: {
        std::string what =
            std::string("not YAML: ") + (parser_.problem == nullptr ? "unreadable" : parser_.problem);
        if (parser_.context != nullptr) {
          what += std::string(" (") + parser_.context;
          if (parser_.context_mark.line != parser_.problem_mark.line) {
            what += " that begins on line " + std::to_string(parser_.context_mark.line + 1);
          }
          what += ")";
        }
        return Fail(MarkOf(parser_.problem_mark), what);
      }
    }
  }

  yaml_parser_t parser_{};
  YamlText result_;
  std::vector<Node> open_;  // the lists and mappings that are not closed yet, outermost first
  int nodes_ = 0;
  int marker_line_ = 0;  // of the last ---
  bool failed_ = false;
  bool done_ = false;
};

}  // namespace

const Node* Node::Find(std::string_view key) const {
  if (kind != Kind::kMap) return nullptr;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].text == key) return &items[i + 1];
  }
  return nullptr;
}

YamlText ParseYaml(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return Builder(text).Build();
}

}  // namespace lockstep::spec
