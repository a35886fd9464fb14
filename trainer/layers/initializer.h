#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "trainer/tensor/shape.h"

namespace lockstep::trainer {

// Keras' names and meanings (keras/src/initializers/random_initializers.py).
enum class Initializer { kZeros, kGlorotUniform };

// "Zeros", "GlorotUniform". Throws BadModel, naming the ones there are.
Initializer ParseInitializer(std::string_view name);

// Fills `values` (shape.num_elements() of them, row-major). Random values are keyed by (seed, variable,
// element) with Philox 4x32-10, so they depend neither on the order of calls nor on the rank. Glorot uniform:
// within ±√(6 / (fan_in + fan_out)), fans as in Keras.
void Initialize(Initializer initializer, const Shape& shape, uint64_t seed, uint32_t variable,
                std::span<float> values);

}  // namespace lockstep::trainer
