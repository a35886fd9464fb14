#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "trainer/tensor/bfloat16.h"
#include "trainer/tensor/dtype.h"

namespace lockstep::trainer {

inline std::vector<float> RandomValues(size_t count, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = distribution(engine);
  return values;
}

// Values as they are in `type`, in bytes and in float32.
struct TypedValues {
  TypedValues(DataType type, std::vector<float> from)
      : values(std::move(from)), bytes(values.size() * SizeOf(type)) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DataType::kBFloat16) {
        const BFloat16 rounded = ToBFloat16(values[i]);
        values[i] = ToFloat(rounded);
        reinterpret_cast<BFloat16*>(bytes.data())[i] = rounded;
      } else {
        reinterpret_cast<float*>(bytes.data())[i] = values[i];
      }
    }
  }
  const void* data() const { return bytes.data(); }
  void* data() { return bytes.data(); }

  std::vector<float> values;
  std::vector<unsigned char> bytes;
};

inline float Element(const void* data, DataType type, size_t index) {
  return type == DataType::kBFloat16 ? ToFloat(static_cast<const BFloat16*>(data)[index])
                                     : static_cast<const float*>(data)[index];
}

}  // namespace lockstep::trainer
