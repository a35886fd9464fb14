#pragma once

#include <cstddef>
#include <span>

namespace lockstep::trainer::collectives {

// to[i] = ((from[0][i] + from[1][i]) + from[2][i]) + … for i < count: the order in which every reduction
// adds, rank by rank. `to` may be one of `from`, but not overlap one otherwise.
void SumInOrder(std::span<const float* const> from, float* to, size_t count);
void SumInOrder(std::span<const double* const> from, double* to, size_t count);

}  // namespace lockstep::trainer::collectives
