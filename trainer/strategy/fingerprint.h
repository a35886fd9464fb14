#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/tensor/parameter_layout.h"

namespace lockstep::trainer::strategy {

// A number that differs, as good as certainly, when the bytes do. Not for enemies.
uint64_t Fingerprint(std::span<const std::byte> bytes, uint64_t seed = 0);

// Of everything that ranks must have in common for their buffers to mean the same.
uint64_t Fingerprint(const ParameterLayout& layout, int slots);

}  // namespace lockstep::trainer::strategy
