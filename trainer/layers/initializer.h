#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trainer/tensor/shape.h"

namespace lockstep::trainer {

// How a variable begins: Keras' names, formulas and defaults (keras/src/initializers).
struct Initializer {
  enum Kind {
    kZeros,
    kOnes,
    kConstant,         // value
    kRandomUniform,    // [minimum, maximum)
    kRandomNormal,     // mean, deviation
    kTruncatedNormal,  // the same, and nothing beyond two deviations
    kGlorotUniform,
    kGlorotNormal,
    kHeUniform,
    kHeNormal
  };

  Initializer() = default;
  Initializer(Kind kind) : kind(kind) {}  // NOLINT(google-explicit-constructor): a kind with its defaults

  Kind kind = kZeros;
  double value = 0;
  double minimum = -0.05;
  double maximum = 0.05;
  double mean = 0;
  double deviation = 0.05;
};

// "Zeros", "GlorotUniform" …, with the defaults. Throws BadModel, naming the ones there are.
Initializer ParseInitializer(std::string_view name);

// Fills `values` (shape.num_elements() of them, row-major). Random values are keyed by (seed, variable,
// element) with Philox 4x32-10, so they depend neither on the order of calls nor on the rank. Glorot's and
// He's scale by the fans of the shape, of a convolution [height, width, inputs, outputs] with its window;
// their normal ones are truncated at two deviations, and these enlarged for what that takes away, as in
// Keras.
void Initialize(const Initializer& initializer, const Shape& shape, uint64_t seed, uint32_t variable,
                std::span<float> values);

}  // namespace lockstep::trainer
