#pragma once

#include <cstdint>

namespace lockstep::trainer::data {

// A finaliser that turns a counter into random bits: SplitMix64 (Steele, Lea, Flood: "Fast splittable
// pseudorandom number generators", OOPSLA 2014).
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Random numbers that are a function of their key alone, on every processor.
class KeyedRandom {
 public:
  KeyedRandom(uint64_t seed, uint64_t stream, uint64_t index)
      : state_(Mix(Mix(Mix(seed + kStep) ^ (stream + kStep)) ^ (index + kStep))) {}

  uint64_t Next() { return Mix(state_ += kStep); }

  // Evenly in [0, bound), by multiplication (Lemire: "Fast random integer generation in an interval", 2019)
  // without its rejection: for bounds below 2^32 the bias is under 2^-32 of each one's share.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  // Evenly in [low, high].
  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(Below(static_cast<uint64_t>(int64_t{high} - low + 1)));
  }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio

  uint64_t state_;
};

}  // namespace lockstep::trainer::data
