#include "trainer/strategy/shares.h"

#include <algorithm>
#include <numeric>

namespace lockstep::trainer::strategy {

std::vector<int> Shares::ranks() const {
  std::vector<int> ranks;
  for (size_t r = 0; r < by_rank.size(); ++r) {
    if (!by_rank[r].variables.empty()) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

std::vector<Share> DivideEvenly(const std::vector<NamedShape>& variables,
                                const std::vector<NamedShape>& state, int count) {
  const auto most = std::max<size_t>(1, variables.size());
  std::vector<Share> shares(std::min(most, static_cast<size_t>(std::max(1, count))));
  std::vector<int64_t> load(shares.size());
  const auto floats = [&](size_t i) { return variables[i].shape.num_elements(); };
  std::vector<size_t> order(variables.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return floats(a) > floats(b); });
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    load[static_cast<size_t>(least)] += floats(i);
    shares[static_cast<size_t>(least)].variables.push_back(i);
  }
  for (Share& share : shares) std::sort(share.variables.begin(), share.variables.end());
  shares.front().state.resize(state.size());
  std::iota(shares.front().state.begin(), shares.front().state.end(), size_t{0});
  return shares;
}

size_t FloatsOf(const std::vector<NamedShape>& all, const std::vector<size_t>& which) {
  int64_t floats = 0;
  for (const size_t i : which) floats += all[i].shape.num_elements();
  return static_cast<size_t>(floats);
}

size_t FloatsOf(const std::vector<NamedShape>& all) {
  int64_t floats = 0;
  for (const NamedShape& each : all) floats += each.shape.num_elements();
  return static_cast<size_t>(floats);
}

}  // namespace lockstep::trainer::strategy
