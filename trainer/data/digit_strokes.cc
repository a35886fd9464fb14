#include "trainer/data/digit_strokes.h"

#include <cstddef>

namespace lockstep::trainer::data {
namespace {

constexpr int32_t kSubunits = 16;
constexpr int kPieces = 4;  // of a curve between two of its points

// In font units.
struct Knot {
  int32_t x, y;
};
using Curve = std::vector<Knot>;

// Uniform Catmull–Rom spline through b and c (Catmull, Rom: "A class of local interpolating splines", 1974),
// at t/kPieces.
int32_t Spline(int32_t a, int32_t b, int32_t c, int32_t d, int32_t t) {
  constexpr int32_t n = kPieces;
  const int32_t sum = 2 * b * n * n * n + (c - a) * t * n * n + (2 * a - 5 * b + 4 * c - d) * t * t * n +
                      (3 * b - a - 3 * c + d) * t * t * t;
  return sum * kSubunits / (2 * n * n * n);
}

Polyline Flatten(const Curve& curve) {
  Polyline line;
  const size_t last = curve.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const Knot a = curve[i == 0 ? 0 : i - 1], b = curve[i], c = curve[i + 1],
               d = curve[i + 2 > last ? last : i + 2];
    for (int32_t t = 0; t < kPieces; ++t)
      line.push_back({Spline(a.x, b.x, c.x, d.x, t), Spline(a.y, b.y, c.y, d.y, t)});
  }
  line.push_back({curve[last].x * kSubunits, curve[last].y * kSubunits});
  return line;
}

Glyph Write(const std::vector<Curve>& curves) {
  Glyph glyph;
  for (const Curve& curve : curves) glyph.strokes.push_back(Flatten(curve));
  return glyph;
}

}  // namespace

std::array<std::vector<Glyph>, 10> DigitFont() {
  std::array<std::vector<Glyph>, 10> font;
  font[0] = {
      Write({{{0, -50}, {-20, -38}, {-28, 0}, {-20, 38}, {0, 50}, {20, 38}, {28, 0}, {20, -38}, {0, -50}}}),
      Write(
          {{{10, -48}, {-12, -40}, {-24, 2}, {-14, 42}, {4, 50}, {20, 30}, {24, -10}, {12, -44}, {-4, -48}}}),
      Write({{{4, -50}, {-10, -44}, {-16, 0}, {-10, 44}, {2, 50}, {13, 40}, {17, -2}, {10, -44}, {-2, -48}}}),
  };
  font[1] = {
      Write({{{0, -50}, {0, 50}}}),
      Write({{{-16, -28}, {2, -50}}, {{2, -50}, {2, 50}}}),
      Write({{{-14, -32}, {2, -50}}, {{2, -50}, {2, 50}}, {{-18, 50}, {20, 50}}}),
  };
  font[2] = {
      Write({{{-24, -28}, {-14, -46}, {4, -50}, {22, -38}, {22, -16}, {4, 12}, {-26, 48}},
             {{-26, 48}, {28, 48}}}),
      Write({{{-24, -30},
              {-10, -48},
              {10, -48},
              {22, -30},
              {14, -4},
              {-8, 30},
              {-24, 44},
              {-22, 30},
              {-6, 34},
              {10, 46},
              {28, 42}}}),
  };
  font[3] = {
      Write({{{-22, -38}, {-6, -50}, {14, -46}, {22, -28}, {12, -8}, {-6, -2}},
             {{-6, -2}, {16, 4}, {26, 24}, {14, 44}, {-6, 50}, {-26, 38}}}),
      Write({{{-22, -48}, {22, -48}},
             {{22, -48}, {-2, -8}},
             {{-2, -8}, {18, 0}, {26, 22}, {14, 44}, {-6, 50}, {-26, 40}}}),
  };
  font[4] = {
      Write({{{-20, -48}, {-24, -10}, {-24, 8}, {0, 8}, {28, 6}}, {{14, -34}, {10, 50}}}),
      Write({{{12, -50}, {-28, 16}}, {{-28, 16}, {28, 16}}, {{12, -50}, {12, 50}}}),
      Write({{{-16, -50}, {-26, -4}, {-8, 4}, {18, -4}}, {{22, -50}, {16, 50}}}),
  };
  font[5] = {
      Write({{{22, -48}, {-18, -48}},
             {{-18, -48}, {-22, -6}},
             {{-22, -6}, {2, -14}, {24, 4}, {24, 30}, {6, 49}, {-24, 40}}}),
      Write(
          {{{24, -46}, {-6, -46}, {-18, -38}, {-18, -12}, {2, -10}, {20, 8}, {18, 36}, {-2, 50}, {-24, 42}}}),
  };
  font[6] = {
      Write({{{18, -48},
              {-8, -26},
              {-24, 10},
              {-18, 40},
              {2, 50},
              {22, 36},
              {20, 12},
              {2, 2},
              {-18, 14},
              {-22, 26}}}),
      Write({{{2, -50}, {-16, -14}, {-22, 24}, {-6, 48}, {16, 44}, {20, 22}, {4, 8}, {-16, 18}, {-20, 30}}}),
  };
  font[7] = {
      Write({{{-26, -46}, {26, -46}}, {{26, -46}, {8, -6}, {-6, 50}}}),
      Write({{{-26, -46}, {26, -46}}, {{26, -46}, {8, -6}, {-6, 50}}, {{-12, 2}, {22, 2}}}),
      Write({{{-26, -30}, {-24, -46}}, {{-24, -46}, {0, -42}, {24, -48}}, {{24, -48}, {10, 0}, {4, 50}}}),
  };
  font[8] = {
      Write({{{16, -36},
              {0, -50},
              {-18, -38},
              {-14, -18},
              {6, -2},
              {22, 22},
              {14, 44},
              {-4, 50},
              {-22, 40},
              {-20, 18},
              {0, -2},
              {18, -18},
              {18, -36},
              {6, -48}}}),
      Write({{{0, -50}, {-18, -40}, {-18, -18}, {0, -6}, {18, -18}, {18, -40}, {0, -50}},
             {{0, -6}, {-22, 10}, {-22, 36}, {0, 50}, {22, 36}, {22, 10}, {0, -6}}}),
  };
  font[9] = {
      Write({{{22, -28}, {8, -48}, {-14, -44}, {-22, -24}, {-10, -6}, {10, -8}, {22, -28}},
             {{22, -36}, {20, 8}, {6, 50}}}),
      Write({{{20, -26},
              {6, -48},
              {-14, -44},
              {-22, -24},
              {-8, -6},
              {12, -10},
              {20, -26},
              {22, 0},
              {14, 36},
              {-4, 50},
              {-20, 42}}}),
  };
  return font;
}

}  // namespace lockstep::trainer::data
