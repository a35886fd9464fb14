#include "trainer/strategy/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace lockstep::trainer::strategy {
namespace {

// MurmurHash3's 64-bit finaliser (Appleby): each bit of the input changes half of those of the output.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

}  // namespace

uint64_t Fingerprint(std::span<const std::byte> bytes, uint64_t seed) {
  uint64_t hash = Mix(seed ^ bytes.size());
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = Mix(hash * 31 + word);
  }
  return hash;
}

uint64_t Fingerprint(const ParameterLayout& layout, int slots) {
  std::string text = std::to_string(layout.total) + " " + std::to_string(slots);
  for (const Variable& variable : layout.variables) {
    text += "; " + variable.name + variable.shape.ToString() + " " + std::to_string(variable.offset) + " " +
            std::to_string(variable.size) + " " + std::to_string(variable.l2);
  }
  return Fingerprint(std::as_bytes(std::span(text)));
}

}  // namespace lockstep::trainer::strategy
