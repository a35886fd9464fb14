#include "trainer/parameter_server/partition.h"

#include <algorithm>

namespace lockstep::trainer::parameter_server {
namespace {

// Everything up to the next variable belongs to it, padding too.
std::vector<Piece> WholeVariables(const ParameterLayout& layout) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < layout.variables.size(); ++i) {
    const bool last = i + 1 == layout.variables.size();
    pieces.push_back(
        {i == 0 ? 0 : layout.variables[i].offset, last ? layout.total : layout.variables[i + 1].offset});
  }
  return pieces;
}

void Cut(const Piece& piece, int servers, std::vector<Piece>* pieces) {
  if (piece.size() <= kLargestWhole) return pieces->push_back(piece);
  const int64_t wanted = (piece.size() + kLargestWhole - 1) / kLargestWhole;
  const int64_t parts = std::min<int64_t>(servers, wanted);
  const int64_t each = ((piece.size() + parts - 1) / parts + kCut - 1) / kCut * kCut;
  for (int64_t begin = piece.begin; begin < piece.end; begin += each) {
    pieces->push_back({begin, std::min(begin + each, piece.end)});
  }
}

void Merge(std::vector<Piece>* pieces) {
  std::sort(pieces->begin(), pieces->end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  size_t kept = 0;
  for (const Piece& piece : *pieces) {
    if (kept > 0 && (*pieces)[kept - 1].end == piece.begin) {
      (*pieces)[kept - 1].end = piece.end;
    } else {
      (*pieces)[kept++] = piece;
    }
  }
  pieces->resize(kept);
}

}  // namespace

std::vector<std::vector<Piece>> Partition(const ParameterLayout& layout, int servers, Spread spread) {
  std::vector<Piece> pieces;
  for (const Piece& variable : WholeVariables(layout)) Cut(variable, servers, &pieces);

  std::vector<std::vector<Piece>> of_servers(static_cast<size_t>(servers));
  if (spread == Spread::kRoundRobin) {
    for (size_t i = 0; i < pieces.size(); ++i) of_servers[i % of_servers.size()].push_back(pieces[i]);
  } else {
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.size() > b.size(); });
    std::vector<int64_t> load(of_servers.size());
    for (const Piece& piece : pieces) {
      const auto least = std::min_element(load.begin(), load.end());
      *least += piece.size();
      of_servers[static_cast<size_t>(least - load.begin())].push_back(piece);
    }
  }
  for (std::vector<Piece>& mine : of_servers) Merge(&mine);
  return of_servers;
}

int64_t FloatsIn(std::span<const Piece> pieces) {
  int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.size();
  return sum;
}

std::vector<UpdateRange> RangesOf(const ParameterLayout& layout, std::span<const Piece> pieces) {
  std::vector<UpdateRange> ranges;
  const std::vector<UpdateRange> all = layout.update_ranges();
  int64_t dense = 0;
  for (const Piece& piece : pieces) {
    for (const UpdateRange& range : all) {
      const int64_t begin = std::max(range.begin, piece.begin), end = std::min(range.end, piece.end);
      if (begin >= end) continue;
      ranges.push_back({dense + begin - piece.begin, dense + end - piece.begin, range.l2, range.decays});
    }
    dense += piece.size();
  }
  return ranges;
}

void Gather(std::span<const Piece> pieces, const float* flat, float* dense) {
  for (const Piece& piece : pieces) dense = std::copy(flat + piece.begin, flat + piece.end, dense);
}

void Scatter(std::span<const Piece> pieces, const float* dense, float* flat) {
  for (const Piece& piece : pieces) {
    std::copy_n(dense, piece.size(), flat + piece.begin);
    dense += piece.size();
  }
}

}  // namespace lockstep::trainer::parameter_server
