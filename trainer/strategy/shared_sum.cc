#include "trainer/strategy/shared_sum.h"

#include <algorithm>

namespace lockstep::trainer::strategy {
namespace {

// Longer sums go in pieces. Twice the channels of most layers.
constexpr size_t kSummedAtOnce = 1024;

}  // namespace

SharedSum::SharedSum(const Options& options) : options_(options) {
  const auto parts = static_cast<size_t>(options_.group->size() + 1) * 2;
  segment_ = options_.group->CreateSegment("replica-sums", parts * kSummedAtOnce * sizeof(double),
                                           options_.deadline());
}

void SharedSum::Sum(std::span<double> values) {
  for (; values.size() > kSummedAtOnce; values = values.subspan(kSummedAtOnce))
    SumPiece(values.first(kSummedAtOnce));
  SumPiece(values);
}

void SharedSum::SumPiece(std::span<double> values) {
  const uint64_t turn = turn_++;
  const int ranks = options_.group->size();
  std::copy(values.begin(), values.end(), Part(options_.group->rank(), turn).begin());
  options_.group->Barrier(options_.operation, options_.deadline());
  if (!options_.several_machines || options_.machines != nullptr) {
    std::fill(values.begin(), values.end(), 0.0);
    for (int r = 0; r < ranks; ++r) {
      const std::span<double> theirs = Part(r, turn);
      for (size_t i = 0; i < values.size(); ++i) values[i] += theirs[i];
    }
  }
  if (!options_.several_machines) return;
  const std::span<double> sum = Part(ranks, turn);
  if (options_.machines != nullptr) {
    options_.machines->AllReduce(values, options_.deadline());
    std::copy(values.begin(), values.end(), sum.begin());
  }
  options_.group->Barrier(options_.operation, options_.deadline());
  std::copy_n(sum.begin(), values.size(), values.begin());
}

std::span<double> SharedSum::Part(int part, uint64_t turn) const {
  const auto index = static_cast<size_t>(part) * 2 + turn % 2;
  return segment_.View<double>(index * kSummedAtOnce * sizeof(double), kSummedAtOnce);
}

}  // namespace lockstep::trainer::strategy
