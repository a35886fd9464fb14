#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

// `lockstep-trainer matmul-demo`: the matrix products of TensorFlow's guide to GPUs, each on the device it is
// placed on by hand, and their sum.
//
//   [[1 2 3] [4 5 6]] · [[1 2] [3 4] [5 6]] = [[22 28] [49 64]]
//
// Prints the sum and returns the exit code. Throws Unsupported for a device that is not there or has no
// kernel for the type, unless soft placement is asked for.
int MatmulDemo(const std::vector<std::string>& arguments);

}  // namespace lockstep::trainer
