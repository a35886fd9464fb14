#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/data/digit_pen.h"
#include "trainer/data/digit_strokes.h"

namespace lockstep::trainer::data {

// The embedded data set: digits drawn by the program in a few handwritings and distorted, 28 × 28 grey
// levels, ink bright on black as in MNIST, and about as hard for a small network. An image is a function of
// (seed, stream, index) alone, on every machine. One thread at a time.
class DigitArtist {
 public:
  static constexpr uint64_t kTrainingStream = 1, kTestStream = 2;

  explicit DigitArtist(uint64_t seed) : seed_(seed), font_(DigitFont()) {}

  // Draws kDigitPixels bytes, row by row; returns the digit.
  int32_t Draw(uint64_t stream, uint64_t index, uint8_t* image);

 private:
  uint64_t seed_;
  std::array<std::vector<Glyph>, 10> font_;
  DigitPen pen_;
};

}  // namespace lockstep::trainer::data
