#include "tests/unit/spec/hostile.h"

#include <random>
#include <utility>

namespace lockstep::spec::testing {

namespace {

using Visitor = std::function<void(const HostileManifest&)>;

constexpr size_t kMegabyte = 1 << 20;
constexpr char kHead[] = "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: x}\nspec:\n";

std::string Repeated(const std::string& unit, size_t size) {
  std::string text;
  text.reserve(size + unit.size());
  while (text.size() + unit.size() <= size) text += unit;
  return text;
}

// Each level one space deeper.
std::string Staircase(const std::string& step, size_t levels) {
  std::string text;
  for (size_t i = 0; i < levels; ++i) text += std::string(i, ' ') + step + "\n";
  return text;
}

void AddSyntax(const Visitor& visit) {
  const std::pair<const char*, const char*> texts[] = {
      {"unclosed double quote", "a: \"b"},
      {"unclosed single quote", "a: 'b"},
      {"unclosed list", "a: [b, c"},
      {"unclosed mapping", "a: {b: c"},
      {"closing bracket", "]"},
      {"closing brace", "}"},
      {"list then bracket", "- a\n]"},
      {"mapping then brace", "a: b\n}"},
      {"mixed brackets", "a: [b}"},
      {"comma", ","},
      {"two commas", "[a,,b]"},
      {"colon", ":"},
      {"question mark", "? "},
      {"only a dash", "-"},
      {"percent", "%"},
      {"unknown directive", "%FOO bar\n---\na: b"},
      {"YAML of the future", "%YAML 9.9\n---\na: b"},
      {"two YAML directives", "%YAML 1.2\n%YAML 1.2\n---\na: b"},
      {"directive without document", "%YAML 1.2\n"},
      {"tag directive", "%TAG ! tag:x,2000:\n---\n!foo a"},
      {"at sign", "a: @b"},
      {"backtick", "a: `b`"},
      {"tab as indentation", "a:\n\tb: c"},
      {"wrong indentation", "a:\n    b: c\n  d: e\n"},
      {"two colons", "a: b: c"},
      {"unknown escape", "a: \"\\z\""},
      {"short escape", "a: \"\\x1\""},
      {"surrogate escape", "a: \"\\ud800\""},
      {"escape beyond Unicode", "a: \"\\UFFFFFFFF\""},
      {"escape at the end", "a: \"\\"},
      {"alias without anchor", "a: *b"},
      {"anchor at the end", "a: &"},
      {"anchor twice", "a: &b &c d"},
      {"cyclic anchor", "&x\n- *x"},
      {"cyclic mapping", "&x {a: *x}"},
      {"anchor on a key", "&a b: c"},
      {"verbatim tag", "a: !<tag:yaml.org,2002:str> b"},
      {"unclosed verbatim tag", "a: !<tag"},
      {"binary tag", "a: !!binary R0lGODlhDAAMAIQAAP"},
      {"python tag", "a: !!python/object/apply:os.system [id]"},
      {"tag percent", "a: !%zz b"},
      {"set", "!!set {a, b}"},
      {"merge of a list", "<<: [a, b]"},
      {"merge of an alias", "<<: *a"},
      {"block scalar without text", "a: |"},
      {"block scalar with a wrong indicator", "a: |0\n b"},
      {"block scalar with two indicators", "a: |+-\n b"},
      {"block scalar less indented", "a: |4\n b\n"},
      {"folded in a list", "[>\n a]"},
      {"document end in a list", "[a\n...\n"},
      {"document start in quotes", "a: \"b\n---\nc\""},
      {"three dots", "...\n...\n"},
      {"only markers", "---\n---\n---\n"},
      {"scalar document", "hello"},
      {"number document", "42"},
      {"null document", "~"},
      {"empty list", "[]"},
      {"empty mapping", "{}"},
      {"list of nothing", "-\n-\n-\n"},
      {"complex key", "? {a: b}\n: c"},
      {"list as a key", "[a]: b"},
      {"empty key", ": b"},
      {"null kind", "apiVersion: lockstep.dev/v1alpha1\nkind: ~"},
      {"list for a kind", "apiVersion: lockstep.dev/v1alpha1\nkind: [TrainingJob]"},
      {"mapping for a version", "apiVersion: {}\nkind: TrainingJob"},
      {"UTF-8 cut short", "a: \xc3"},
      {"overlong UTF-8", "a: \xc0\xaf"},
      {"surrogate in UTF-8", "a: \xed\xa0\x80"},
      {"beyond Unicode", "a: \xf7\xbf\xbf\xbf"},
      {"Latin-1", "a: caf\xe9"},
      {"UTF-16",
       "\xff\xfe"
       "a"},
      {"control character", "a: \x01"},
      {"delete character", "a: \x7f"},
      {"escape character", "a: \x1b[31m"},
      {"byte-order mark alone", "\xef\xbb\xbf"},
      {"byte-order mark inside",
       "a: \xef\xbb\xbf"
       "b"},
      {"carriage returns", "a:\r  b\r c"},
  };
  for (const auto& [name, text] : texts) visit(HostileManifest{name, text});
  visit(HostileManifest{"nothing", ""});
  visit(HostileManifest{"NUL byte", std::string("a: \0b", 5)});
  visit(HostileManifest{"only NUL bytes", std::string(kMegabyte, '\0')});
}

void AddSize(const Visitor& visit) {
  const std::pair<const char*, const char*> units[] = {{"brackets", "["},
                                                       {"braces", "{"},
                                                       {"braces with keys", "{a: "},
                                                       {"brackets and commas", "[a,"},
                                                       {"dashes", "- "},
                                                       {"question marks", "? "},
                                                       {"colons", ": "},
                                                       {"commas", ","},
                                                       {"quotes", "\""},
                                                       {"single quotes", "'"},
                                                       {"anchors", "&a "},
                                                       {"aliases", "*a "},
                                                       {"tags", "!a "},
                                                       {"exclamation marks", "!"},
                                                       {"percents", "%a\n"},
                                                       {"hashes", "#"},
                                                       {"comments", "# a\n"},
                                                       {"spaces", " "},
                                                       {"tabs", "\t"},
                                                       {"newlines", "\n"},
                                                       {"carriage returns", "\r"},
                                                       {"markers", "---\n"},
                                                       {"markers with text", "--- a\n"},
                                                       {"dots", "...\n"},
                                                       {"letters", "a"},
                                                       {"words", "a "},
                                                       {"lines", "aaa\n"},
                                                       {"items", "- a\n"},
                                                       {"pairs", "a: b\n"},
                                                       {"empty lists", "[],"},
                                                       {"backslashes", "\\"},
                                                       {"pipes", "|\n"},
                                                       {"invalid bytes", "\xff"},
                                                       {"umlauts", "\xc3\xa4"},
                                                       {"four-byte characters", "\xf0\x9f\x98\x80"},
                                                       {"closing brackets", "]"},
                                                       {"dash newline", "-\n"},
                                                       {"nested lists", "- - "},
                                                       {"ampersands", "&"},
                                                       {"greater-than", ">\n "},
                                                       {"at signs", "@"},
                                                       {"key without value", "a:\n"},
                                                       {"null bytes and text", "a\x01"}};
  for (const auto& [name, unit] : units)
    visit(HostileManifest{std::string("a megabyte of ") + name, Repeated(unit, kMegabyte)});

  const auto add = [&](const char* name, const std::string& begin, const std::string& unit,
                       const std::string& end) {
    visit(HostileManifest{name, begin + Repeated(unit, kMegabyte - begin.size() - end.size()) + end});
  };
  add("a megabyte in double quotes", "\"", "a", "\"");
  add("a megabyte in single quotes", "'", "''", "'");
  add("a megabyte of escapes", "\"", "\\x41", "\"");
  add("a megabyte of folded quotes", "\"", "a\n", "\"");
  add("a megabyte in a block", "a: |\n", "  aaaa\n", "");
  add("a megabyte folded", "a: >\n", "  a\n\n", "");
  add("a megabyte as a key", "", "a", ": b");
  add("a megabyte as a quoted key", "\"", "a", "\": b");
  add("a megabyte of flow", "[", "a, ", "a]");
  add("a megabyte of flow pairs", "{", "a: b, ", "a: b}");
  add("a megabyte of JSON", "{", "\"a\":1,", "\"b\":1}");
  add("a megabyte of flow lines", "[", "a,\n", "a]");
  add("a megabyte of empty flow items", "[", "[],", "a]");
  add("a megabyte unclosed", "a: [", "\"b\",", "");
  add("a megabyte of name", "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: ", "a",
      "}\n");
  add("a megabyte of version", "kind: TrainingJob\napiVersion: ", "lockstep.dev/", "\n");
  add("a megabyte of kind", "apiVersion: lockstep.dev/v1alpha1\nkind: ", "TrainingJob", "\n");
  add("a megabyte of digits", std::string(kHead) + "  replicas: ", "9", "\n");
  add("a megabyte of decimals", std::string(kHead) + "  trainer: {optimizer: {learningRate: 0.", "1",
      "e}}\n");
  add("a megabyte of zeros", std::string(kHead) + "  replicas: 0", "0", "\n");
  add("a megabyte of underscores", std::string(kHead) + "  replicas: 1", "_", "\n");
  add("a megabyte of quantity", std::string(kHead) + "  devices: {memory: {policy: Limit, limit: \"1", "0",
      "Gi\"}}\n");
  add("a megabyte of duration", std::string(kHead) + "  runPolicy: {activeDeadlineSeconds: ", "1h", "}\n");
  add("a megabyte of address", std::string(kHead) + "  http: {address: \"", ":", "\"}\n");
  add("a megabyte of unknown fields", kHead, "  procesesPerReplica: 1\n", "");
  add("a megabyte of visible devices", std::string(kHead) + "  devices: {visible: [", "\"0\",", "\"0\"]}\n");
  add("a megabyte of UUIDs", std::string(kHead) + "  devices: {visible: [",
      "GPU-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, ", "x]}\n");
  add("a megabyte of variables", std::string(kHead) + "  program: {env: [", "{name: A, value: b},", "{}]}\n");
  add("a megabyte of layers", std::string(kHead) + "  trainer: {model: {layers: [", "{type: Dens, units: 1},",
      "{}]}}\n");
  add("a megabyte of placements", std::string(kHead) + "  placement: {layers: [",
      "{match: \"a*\", device: \"x\"},", "{}]}\n");
  add("a megabyte of codes", std::string(kHead) + "  runPolicy: {exitCodes: [{action: Fail, codes: [", "0,",
      "0]}]}\n");
  add("a megabyte of template", std::string(kHead) + "  template: {a: [", "yes,", "no]}\n");
  add("a megabyte of labels", "apiVersion: lockstep.dev/v1alpha1\nkind: TrainingJob\nmetadata:\n  labels:\n",
      "    a.b.c.d/-: \"-\"\n", "");
  add("a megabyte of jobs", "", std::string(kHead) + "  replicas: 0\n---\n", "");
  add("a megabyte of objects", "", "kind: Pod\n---\n", "a: [");
  visit(HostileManifest{"a byte too many", std::string(kMegabyte + 1, ' ')});
  visit(HostileManifest{"sixteen megabytes", Repeated("a: b\n", 16 * kMegabyte)});
}

void AddDepth(const Visitor& visit) {
  for (const size_t levels : {64, 65, 500, 1000}) {
    visit(HostileManifest{"a staircase of mappings " + std::to_string(levels), Staircase("a:", levels)});
    visit(HostileManifest{"a staircase of lists " + std::to_string(levels), Staircase("-", levels)});
    visit(HostileManifest{"brackets " + std::to_string(levels),
                          std::string(levels, '[') + std::string(levels, ']')});
  }
  visit(HostileManifest{"deep below template",
                        std::string(kHead) + "  template: " + Repeated("{a: ", 400) + Repeated("}", 100)});

  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 8; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  visit(HostileManifest{"a billion laughs", bomb});
  std::string merge = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 1000; ++i) {
    merge +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {<<: *a" + std::to_string(i - 1) + "}\n";
  }
  visit(HostileManifest{"a chain of merges", merge});
  std::string many;
  for (int i = 0; many.size() + 24 < kMegabyte; ++i) many += "k" + std::to_string(i) + ": v\n";
  visit(HostileManifest{"a hundred thousand keys", many});
  std::string sames = kHead;
  for (int i = 0; i < 40'000; ++i) sames += "  replicas: 1\n";
  visit(HostileManifest{"a key forty thousand times", sames});
}

}  // namespace

void VisitHostileManifests(const std::string& example, const Visitor& visit) {
  AddSyntax(visit);
  AddSize(visit);
  AddDepth(visit);
  for (size_t i = 0; i < 40; ++i) {
    const size_t size = example.size() * i / 40;
    visit(HostileManifest{"the first " + std::to_string(size) + " bytes of an example",
                          example.substr(0, size), false});
  }
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    std::string text = example;
    // Bytes that mean something to YAML, and any others.
    const std::string meaning = "{}[]:,-?&*!|>'\"%@`#\n\t \\~0y";
    for (unsigned change = 0; change <= seed % 8; ++change) {
      const size_t at = random() % text.size();
      const char byte =
          random() % 4 == 0 ? static_cast<char>(random() % 256) : meaning[random() % meaning.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + random() % 5);
      }
    }
    visit(HostileManifest{"an example mutated with seed " + std::to_string(seed), text, false});
  }
}

}  // namespace lockstep::spec::testing
