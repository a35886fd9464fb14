#include "trainer/data/digit_pen.h"

#include <algorithm>
#include <cstdlib>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace lockstep::trainer::data {
namespace {

constexpr int32_t kOne = 256;  // a pixel

int32_t SquareRoot(int32_t n) {
  int32_t root = 0;
  for (int32_t bit = 1 << 15; bit != 0; bit >>= 1) {
    const int64_t next = root + bit;
    if (next * next <= n) root += bit;
  }
  return root;
}

// canvas[8] = max(canvas[8], stamp[8])
void Darken(uint8_t* canvas, const uint8_t* stamp) {
#if defined(__SSE2__)
  auto* both = reinterpret_cast<__m128i*>(canvas);
  _mm_storel_epi64(
      both, _mm_max_epu8(_mm_loadl_epi64(both), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(stamp))));
#else
  for (int i = 0; i < 8; ++i) canvas[i] = std::max(canvas[i], stamp[i]);
#endif
}

}  // namespace

DigitPen::DigitPen() : stamps_(kThicknesses * kPhases * kPhases) {
  constexpr int32_t kLeastRadius = kOne / 2, kRadiusStep = kOne * 3 / 32;
  constexpr int32_t kEdge = kOne;  // from full ink to none
  for (int32_t i = 0; i < static_cast<int32_t>(stamps_.size()); ++i) {
    const int32_t radius = kLeastRadius + i / (kPhases * kPhases) * kRadiusStep;
    const int32_t phase_y = i / kPhases % kPhases, phase_x = i % kPhases;
    for (int32_t y = 0; y < kStampSide; ++y) {
      for (int32_t x = 0; x < kStampSide; ++x) {
        // From the middle of the pixel to the pen's.
        const int32_t dx = (x - kStampSide / 2) * kOne + kOne / 2 - phase_x * kOne / kPhases;
        const int32_t dy = (y - kStampSide / 2) * kOne + kOne / 2 - phase_y * kOne / kPhases;
        const int32_t beyond = SquareRoot(dx * dx + dy * dy) - (radius - kEdge / 2);
        stamps_[i][y * kStampSide + x] =
            static_cast<uint8_t>(std::clamp(kOne - 1 - beyond * (kOne - 1) / kEdge, 0, 255));
      }
    }
  }
}

void DigitPen::Line(PenPoint from, PenPoint to, int32_t thickness) {
  const Stamp* stamps = &stamps_[thickness * kPhases * kPhases];
  const int32_t dx = to.x - from.x, dy = to.y - from.y;
  constexpr int32_t kSpacing = kOne * 5 / 8;  // close enough for the edge to look straight
  const int32_t steps = std::max(std::abs(dx), std::abs(dy)) / kSpacing + 1;
  // Positions in 2^-16 pixels, so that rounding does not add up.
  int32_t x = from.x * kOne, y = from.y * kOne;
  const int32_t step_x = dx * kOne / steps, step_y = dy * kOne / steps;
  for (int32_t i = 0; i <= steps; ++i, x += step_x, y += step_y) Press(x / kOne, y / kOne, stamps);
}

void DigitPen::Press(int32_t x, int32_t y, const Stamp* stamps) {
  // In phases, from the canvas's corner.
  constexpr int32_t kMiddle = (kMargin + kDigitSide / 2) * kPhases;
  constexpr int32_t kLow = kStampSide / 2 * kPhases, kHigh = (kRows - kStampSide / 2) * kPhases - 1;
  const int32_t px = x / (kOne / kPhases) + kMiddle, py = y / (kOne / kPhases) + kMiddle;
  if (px < kLow || px > kHigh || py < kLow || py > kHigh) return;
  const Stamp& stamp = stamps[py % kPhases * kPhases + px % kPhases];
  uint8_t* corner = &canvas_[(py / kPhases - kStampSide / 2) * kStride + px / kPhases - kStampSide / 2];
  for (int32_t row = 0; row < kStampSide; ++row) Darken(corner + row * kStride, &stamp[row * kStampSide]);
}

}  // namespace lockstep::trainer::data
