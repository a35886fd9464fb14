#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/tensor/shape.h"

namespace lockstep::trainer {

// A variable's place and length are multiples of this many floats: one cache line.
inline constexpr int64_t kVariablePadding = 16;

// One trained variable within the flat buffers.
struct Variable {
  std::string name;     // "dense/kernel"
  Shape shape;          // canonical, as Keras has it: kernel [inputs, units], bias [units]
  int64_t offset = 0;   // in floats
  int64_t size = 0;     // in floats, padding not counted: what a kernel stores, at least shape.num_elements()
  double l2 = 0;        // penalty l2 · Σ w²
  bool decays = false;  // weight decay applies
};

// A range of the flat buffers whose elements have the penalty l2 · Σ w², or decay, or both. Disjoint,
// ascending.
struct UpdateRange {
  int64_t begin = 0;
  int64_t end = 0;
  float l2 = 0;
  bool decays = false;
};

// How the flat float32 buffers of parameters, gradients and optimizer state are laid out: the last layer
// first, so that gradients become ready from offset 0 upwards. The floats between variables are padding: zero
// in every buffer, and kept zero by every update. The order of elements within a variable is the backend's
// own (blocked, say), the same for all batch sizes and on all ranks with the same kind of processor;
// Model::ExportCanonical says it in row-major order.
struct ParameterLayout {
  std::vector<Variable> variables;  // by offset
  int64_t total = 0;                // floats, padding counted

  std::vector<UpdateRange> update_ranges() const;
};

}  // namespace lockstep::trainer
