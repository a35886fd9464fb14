#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// A small reader of the text exposition and of OpenMetrics, and the rules that promtool's linter has.
namespace lockstep::telemetry {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

struct Family {
  std::string name;
  std::string type;
  std::string help;
  std::string unit;
  std::vector<Sample> samples;
};

struct Exposition {
  std::vector<Family> families;
  bool eof = false;  // "# EOF"

  const Family* Find(const std::string& name) const {
    for (const Family& family : families) {
      if (family.name == name) return &family;
    }
    return nullptr;
  }
  // The sample with all these labels; NaN when there is none.
  double Value(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    for (const Family& family : families) {
      for (const Sample& sample : family.samples) {
        bool matches = sample.name == name;
        for (const auto& [key, value] : labels) {
          matches = matches && sample.labels.contains(key) && sample.labels.at(key) == value;
        }
        if (matches) return sample.value;
      }
    }
    return std::nan("");
  }
};

inline Sample ParseSample(const std::string& line) {
  Sample sample;
  size_t at = line.find_first_of("{ ");
  EXPECT_NE(at, std::string::npos) << line;
  if (at == std::string::npos) return sample;
  sample.name = line.substr(0, at);
  if (line[at] == '{') {
    ++at;
    while (at < line.size() && line[at] != '}') {
      const size_t equals = line.find("=\"", at);
      EXPECT_NE(equals, std::string::npos) << line;
      const std::string name = line.substr(at, equals - at);
      std::string value;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') ++at;
        value += line[at];
      }
      EXPECT_TRUE(sample.labels.emplace(name, value).second) << "label twice: " << line;
      ++at;
      if (at < line.size() && line[at] == ',') ++at;
    }
    ++at;
  }
  EXPECT_EQ(line[at], ' ') << line;
  char* end = nullptr;
  sample.value = std::strtod(line.c_str() + at + 1, &end);
  EXPECT_EQ(*end, '\0') << line;
  return sample;
}

inline Exposition ParseExposition(const std::string& text) {
  Exposition result;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  std::istringstream lines(text);
  std::string line;
  std::set<std::string> closed;
  while (std::getline(lines, line)) {
    EXPECT_FALSE(result.eof) << "after # EOF: " << line;
    if (line == "# EOF") {
      result.eof = true;
    } else if (line.starts_with("# ")) {
      std::istringstream words(line.substr(2));
      std::string kind, name;
      words >> kind >> name;
      std::string rest;
      std::getline(words >> std::ws, rest);
      if (result.families.empty() || result.families.back().name != name) {
        EXPECT_TRUE(closed.insert(name).second) << "family twice: " << name;
        result.families.push_back({.name = name, .type = "", .help = "", .unit = "", .samples = {}});
      }
      Family& family = result.families.back();
      EXPECT_TRUE(family.samples.empty()) << "metadata after samples: " << line;
      if (kind == "TYPE") family.type = rest;
      if (kind == "HELP") family.help = rest;
      if (kind == "UNIT") family.unit = rest;
      EXPECT_TRUE(kind == "TYPE" || kind == "HELP" || kind == "UNIT") << line;
    } else {
      const Sample sample = ParseSample(line);
      EXPECT_FALSE(result.families.empty()) << line;
      EXPECT_TRUE(sample.name.starts_with(result.families.back().name)) << "outside of its family: " << line;
      result.families.back().samples.push_back(sample);
    }
  }
  return result;
}

// promtool check metrics, as far as it concerns what we expose.
inline void Lint(const Exposition& exposition, bool open_metrics) {
  static const std::set<std::string> kLabels = {
      "namespace", "job",    "role", "replica", "process", "device",   "precision", "op",
      "reason",    "result", "kind", "le",      "version", "compiler", "strategy",  "framework"};
  for (const Family& family : exposition.families) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_FALSE(family.samples.empty()) << family.name;
    EXPECT_TRUE(family.name.starts_with("lockstep_") || family.name.starts_with("process_")) << family.name;
    EXPECT_EQ(family.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << family.name;
    const bool counter = family.type == "counter";
    EXPECT_EQ(counter && !open_metrics, family.name.ends_with("_total")) << family.name;
    for (const char* wrong : {"_milliseconds", "_minutes", "_percent", "_kilobytes", "_count", "_sum",
                              "_bucket", "_gauge", "_counter", "_histogram", "_ms"}) {
      EXPECT_FALSE(family.name.ends_with(wrong)) << family.name;
    }
    EXPECT_TRUE(family.unit.empty() || family.name.ends_with("_" + family.unit)) << family.name;
    std::set<std::pair<std::string, std::map<std::string, std::string>>> seen;
    for (const Sample& sample : family.samples) {
      EXPECT_TRUE(seen.emplace(sample.name, sample.labels).second) << "series twice: " << sample.name;
      for (const auto& [label, value] : sample.labels) EXPECT_TRUE(kLabels.contains(label)) << label;
      EXPECT_TRUE(!counter || sample.value >= 0) << sample.name;
      EXPECT_TRUE(!counter || !open_metrics || sample.name == family.name + "_total") << sample.name;
    }
  }
}

}  // namespace lockstep::telemetry
