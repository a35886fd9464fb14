#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::trainer::data {

inline constexpr int32_t kDigitSide = 28;  // pixels
inline constexpr int32_t kDigitPixels = kDigitSide * kDigitSide;

// In 1/256 of a pixel; (0, 0) is the middle of the image, y points down.
struct PenPoint {
  int32_t x = 0, y = 0;
};

// Draws with a round, soft-edged pen: a line is a row of stamps, made beforehand for every thickness and
// every quarter of a pixel. Whole numbers only, hence the same on every machine. One thread at a time.
class DigitPen {
 public:
  static constexpr int32_t kThicknesses = 16;  // 0: about one pixel across, 15: about four

  DigitPen();

  void Clear() { canvas_.fill(0); }
  // What is outside the image is left out.
  void Line(PenPoint from, PenPoint to, int32_t thickness);
  // The image's row `y`, kDigitSide bytes: ink from 0 to 255.
  const uint8_t* Row(int32_t y) const { return &canvas_[(y + kMargin) * kStride + kMargin]; }

 private:
  static constexpr int32_t kStampSide = 8;
  static constexpr int32_t kMargin = kStampSide;
  static constexpr int32_t kStride = 48;  // at least the image and both margins
  static constexpr int32_t kRows = kDigitSide + 2 * kMargin;
  static constexpr int32_t kPhases = 4;  // positions within a pixel, each way

  using Stamp = std::array<uint8_t, kStampSide * kStampSide>;

  void Press(int32_t x, int32_t y, const Stamp* stamps);

  std::vector<Stamp> stamps_;  // [kThicknesses, kPhases, kPhases]
  alignas(64) std::array<uint8_t, kRows * kStride> canvas_{};
};

}  // namespace lockstep::trainer::data
