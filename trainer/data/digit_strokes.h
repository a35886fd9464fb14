#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::trainer::data {

// Sixteenths of a font unit. A digit is 100 units high and at most 60 wide, its centre is (0, 0), y points
// down.
struct FontPoint {
  int32_t x = 0, y = 0;
};

using Polyline = std::vector<FontPoint>;

// One way to write a digit: what the pen does from setting down to lifting, stroke by stroke.
struct Glyph {
  std::vector<Polyline> strokes;
};

// The ways to write each digit, their curves as polylines. The same on every machine: whole numbers only.
std::array<std::vector<Glyph>, 10> DigitFont();

}  // namespace lockstep::trainer::data
