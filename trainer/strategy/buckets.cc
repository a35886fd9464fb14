#include "trainer/strategy/buckets.h"

#include <algorithm>
#include <string>

namespace lockstep::trainer::strategy {
namespace {

// Where layers end, ascending; the last is the total.
std::vector<int64_t> EndsOfLayers(const ParameterLayout& layout) {
  const auto layer = [](const Variable& variable) {
    return variable.name.substr(0, variable.name.rfind('/'));
  };
  std::vector<int64_t> ends;
  for (size_t i = 1; i < layout.variables.size(); ++i) {
    if (layer(layout.variables[i]) != layer(layout.variables[i - 1])) {
      ends.push_back(layout.variables[i].offset);
    }
  }
  ends.push_back(layout.total);
  return ends;
}

}  // namespace

std::vector<collectives::Range> CutIntoBuckets(const ParameterLayout& layout, size_t target,
                                               size_t worth_two) {
  return CutIntoBuckets(EndsOfLayers(layout), target, worth_two);
}

std::vector<collectives::Range> CutIntoBuckets(std::span<const int64_t> borders, size_t target,
                                               size_t worth_two) {
  const std::vector<size_t> ends(borders.begin(), borders.end());
  const size_t total = ends.back();
  if (total >= worth_two) target = std::min(target, (total + 1) / 2);
  std::vector<collectives::Range> buckets;
  size_t begin = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    const size_t without = ends[i] - begin, with = ends[i + 1] - begin;  // the next layer
    const bool nearer = without >= target || with - target >= target - without;
    const bool last_chance = buckets.empty() && i + 2 == ends.size();
    if (with <= target || (!nearer && !last_chance)) continue;
    buckets.push_back({begin, ends[i]});
    begin = ends[i];
  }
  buckets.push_back({begin, total});
  return buckets;
}

}  // namespace lockstep::trainer::strategy
