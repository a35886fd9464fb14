#include "trainer/layers/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using Counter = std::array<uint32_t, 4>;

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC'11).
Counter Philox(Counter counter, uint64_t seed) {
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// A uniform number in [0, 1) for each element, from the 24 upper bits of a word.
void FillUniform(uint64_t seed, uint32_t variable, float low, float high, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const uint64_t block = i / 4;
    const Counter words =
        Philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), variable, 0}, seed);
    for (size_t j = i; j < std::min(i + 4, values.size()); ++j) {
      const float unit = static_cast<float>(words[j - i] >> 8) * 0x1p-24f;
      values[j] = low + (high - low) * unit;
    }
  }
}

// Fans as keras/src/initializers/random_initializers.py, compute_fans().
float GlorotLimit(const Shape& shape) {
  double fan_in = 1;
  double fan_out = 1;
  if (shape.rank() == 1) {
    fan_in = fan_out = static_cast<double>(shape[0]);
  } else if (shape.rank() >= 2) {
    double receptive_field = 1;
    for (int axis = 0; axis < shape.rank() - 2; ++axis) receptive_field *= static_cast<double>(shape[axis]);
    fan_in = static_cast<double>(shape[shape.rank() - 2]) * receptive_field;
    fan_out = static_cast<double>(shape[shape.rank() - 1]) * receptive_field;
  }
  return static_cast<float>(std::sqrt(6.0 / (fan_in + fan_out)));
}

}  // namespace

Initializer ParseInitializer(std::string_view name) {
  if (name == "Zeros") return Initializer::kZeros;
  if (name == "GlorotUniform") return Initializer::kGlorotUniform;
  throw BadModel("initializer " + std::string(name) + " is not one of GlorotUniform, Zeros");
}

void Initialize(Initializer initializer, const Shape& shape, uint64_t seed, uint32_t variable,
                std::span<float> values) {
  switch (initializer) {
    case Initializer::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      return;
    case Initializer::kGlorotUniform: {
      const float limit = GlorotLimit(shape);
      FillUniform(seed, variable, -limit, limit, values);
      return;
    }
  }
}

}  // namespace lockstep::trainer
