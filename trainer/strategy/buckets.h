#pragma once

#include <span>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/tensor/parameter_layout.h"

namespace lockstep::trainer::strategy {

// Cuts the flat buffers at the borders of layers into buckets that are all-reduced one by one, each as soon
// as the backward pass has come past it: of about `target` floats; but where the whole is at least
// `worth_two`, and has a border, into two at least, so that there is something to hide behind what is left of
// the pass. They follow one another from 0 to layout.total, the same on every rank.
std::vector<collectives::Range> CutIntoBuckets(const ParameterLayout& layout, size_t target,
                                               size_t worth_two);
// The same with other borders: `ends`, ascending, the last of which is the whole.
std::vector<collectives::Range> CutIntoBuckets(std::span<const int64_t> ends, size_t target,
                                               size_t worth_two);

}  // namespace lockstep::trainer::strategy
