#include "trainer/layers/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

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

// (The last word of the counter keeps the kinds, and attempts, apart.)
Counter Block(uint64_t block, uint32_t variable, uint32_t use) {
  return {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), variable, use};
}

// A uniform number in [0, 1) for each element, from the 24 upper bits of a word.
void FillUniform(uint64_t seed, uint32_t variable, float low, float high, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const uint64_t block = i / 4;
    const Counter words = Philox(Block(block, variable, 0), seed);
    for (size_t j = i; j < std::min(i + 4, values.size()); ++j) {
      const float unit = static_cast<float>(words[j - i] >> 8) * 0x1p-24f;
      values[j] = low + (high - low) * unit;
    }
  }
}

// Four numbers of the normal distribution from a block of random words (Box, Muller: A Note on the Generation
// of Random Normal Deviates, 1958).
std::array<double, 4> Normals(const Counter& words) {
  std::array<double, 4> normals;
  for (size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((words[i] + 0.5) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * (words[i + 1] + 0.5) * 0x1p-32;
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

void FillNormal(uint64_t seed, uint32_t variable, double mean, double deviation, std::span<float> values) {
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto normals = Normals(Philox(Block(i / 4, variable, 1), seed));
    for (size_t j = i; j < std::min(i + 4, values.size()); ++j) {
      values[j] = static_cast<float>(mean + deviation * normals[j - i]);
    }
  }
}

// One within two deviations, from as many blocks as it takes: of four numbers 0.82 are in the first.
double DrawTruncated(uint64_t seed, uint32_t variable, uint64_t element) {
  for (uint32_t attempt = 2;; ++attempt) {
    for (const double normal : Normals(Philox(Block(element, variable, attempt), seed))) {
      if (std::abs(normal) <= 2) return normal;
    }
  }
}

void FillTruncated(uint64_t seed, uint32_t variable, double mean, double deviation, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(mean + deviation * DrawTruncated(seed, variable, i));
  }
}

struct Fans {
  double in = 1;
  double out = 1;
};

// As keras/src/initializers/random_initializers.py, compute_fans().
Fans FansOf(const Shape& shape) {
  if (shape.rank() == 0) return {};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double window = 1;
  for (int axis = 0; axis < shape.rank() - 2; ++axis) window *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[shape.rank() - 2]) * window,
          static_cast<double>(shape[shape.rank() - 1]) * window};
}

// VarianceScaling's: what truncation at two deviations leaves of one.
constexpr double kTruncatedDeviation = 0.87962566103423978;

constexpr std::pair<std::string_view, Initializer::Kind> kKinds[] = {
    {"Zeros", Initializer::kZeros},
    {"Ones", Initializer::kOnes},
    {"Constant", Initializer::kConstant},
    {"RandomUniform", Initializer::kRandomUniform},
    {"RandomNormal", Initializer::kRandomNormal},
    {"TruncatedNormal", Initializer::kTruncatedNormal},
    {"GlorotUniform", Initializer::kGlorotUniform},
    {"GlorotNormal", Initializer::kGlorotNormal},
    {"HeUniform", Initializer::kHeUniform},
    {"HeNormal", Initializer::kHeNormal}};

}  // namespace

Initializer ParseInitializer(std::string_view name) {
  std::string known;
  for (const auto& [word, kind] : kKinds) {
    if (word == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw BadModel("initializer " + std::string(name) + " is not one of " + known);
}

void Initialize(const Initializer& initializer, const Shape& shape, uint64_t seed, uint32_t variable,
                std::span<float> values) {
  const Fans fans = FansOf(shape);
  const auto constant = [&](double value) {
    std::fill(values.begin(), values.end(), static_cast<float>(value));
  };
  const auto uniform = [&](double squared_limit) {
    const auto limit = static_cast<float>(std::sqrt(squared_limit));
    FillUniform(seed, variable, -limit, limit, values);
  };
  const auto truncated = [&](double variance) {
    FillTruncated(seed, variable, 0, std::sqrt(variance) / kTruncatedDeviation, values);
  };
  switch (initializer.kind) {
    case Initializer::kZeros:
      return constant(0);
    case Initializer::kOnes:
      return constant(1);
    case Initializer::kConstant:
      return constant(initializer.value);
    case Initializer::kRandomUniform:
      return FillUniform(seed, variable, static_cast<float>(initializer.minimum),
                         static_cast<float>(initializer.maximum), values);
    case Initializer::kRandomNormal:
      return FillNormal(seed, variable, initializer.mean, initializer.deviation, values);
    case Initializer::kTruncatedNormal:
      return FillTruncated(seed, variable, initializer.mean, initializer.deviation, values);
    case Initializer::kGlorotUniform:
      return uniform(6 / (fans.in + fans.out));
    case Initializer::kGlorotNormal:
      return truncated(2 / (fans.in + fans.out));
    case Initializer::kHeUniform:
      return uniform(6 / fans.in);
    case Initializer::kHeNormal:
      return truncated(2 / fans.in);
  }
}

}  // namespace lockstep::trainer
