#include "launcher/telemetry/layer_graph.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::telemetry {

namespace {

using contract::LayerEvent;

// What comes before the first layer has no device of its own, and no name in the manifest.
constexpr char kInputs[] = "inputs";

// Names of nodes are made of these; a colon would be an output's number.
std::string NodeName(std::string name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_.-/").find(static_cast<char>(c)) != std::string::npos;
  };
  for (char& c : name) {
    if (!allowed(static_cast<unsigned char>(c))) c = '_';
  }
  if (name.empty() || std::isalnum(static_cast<unsigned char>(name.front())) == 0) name.insert(0, "layer");
  return name;
}

// "24,24,64" of a batch of any size. Empty: it is no shape.
std::vector<int64_t> BatchOf(std::string_view sample) {
  std::vector<int64_t> dims{-1};
  while (!sample.empty()) {
    int64_t dim = 0;
    const auto [end, error] = std::from_chars(sample.data(), sample.data() + sample.size(), dim);
    if (error != std::errc()) return {};
    dims.push_back(dim);
    sample.remove_prefix(static_cast<size_t>(end - sample.data()));
    if (sample.starts_with(',')) sample.remove_prefix(1);
  }
  return dims;
}

using Copy = std::vector<LayerEvent>;

// A rank with the first layer begins a new one.
std::vector<Copy> CopiesOf(std::span<const Copy> ranks) {
  std::vector<Copy> copies;
  for (Copy layers : ranks) {
    if (layers.empty()) continue;
    std::sort(layers.begin(), layers.end(),
              [](const LayerEvent& a, const LayerEvent& b) { return a.index < b.index; });
    if (copies.empty() || layers.front().index == 0) copies.emplace_back();
    copies.back().insert(copies.back().end(), layers.begin(), layers.end());
  }
  return copies;
}

}  // namespace

std::vector<GraphNode> LayerGraph(std::span<const std::vector<LayerEvent>> ranks) {
  const std::vector<Copy> copies = CopiesOf(ranks);
  std::vector<GraphNode> nodes;
  for (size_t i = 0; i < copies.size(); ++i) {
    const std::string group = copies.size() > 1 ? "replica_" + std::to_string(i) + "/" : "";
    std::set<std::string> taken;
    std::map<std::string, int> again;  // how often a name was there before
    const auto add = [&](const std::string& wanted, GraphNode node) {
      std::string name = wanted;
      while (!taken.insert(name).second) name = wanted + "_" + std::to_string(++again[wanted]);
      node.name = group + name;
      nodes.push_back(std::move(node));
    };
    add(kInputs, {.op = "Placeholder", .device = copies[i].front().device});
    for (const LayerEvent& layer : copies[i]) {
      add(NodeName(layer.name), {.op = layer.type,
                                 .inputs = {nodes.back().name},
                                 .device = layer.device,
                                 .output = BatchOf(layer.output)});
    }
  }
  return nodes;
}

}  // namespace lockstep::telemetry
