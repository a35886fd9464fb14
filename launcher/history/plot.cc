#include "launcher/history/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>

#include "launcher/telemetry/text_format.h"

namespace lockstep::history {

namespace {

constexpr int kWidth = 900, kPanelHeight = 260, kLeft = 90, kRight = 20, kTop = 40, kBottom = 40;
constexpr size_t kMostPoints = 2000;  // of a curve
// Okabe and Ito's colours, which people with any colour vision tell apart (jfly.uni-koeln.de/color).
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double Share(double value) const { return (value - low) / (high - low); }
};

// The next of 1, 2, 5 times a power of ten, so that there are about `count` of them.
double TickStep(const Range& range, int count) {
  const double raw = (range.high - range.low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// With ends that are ticks, and never empty.
Range Rounded(Range range) {
  if (!(range.low <= range.high)) return {0, 1};
  if (range.low == range.high) range.high = range.low + std::max(1.0, std::abs(range.low));
  const double step = TickStep(range, 5);
  return {std::floor(range.low / step) * step, std::ceil(range.high / step) * step};
}

std::string Number(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::string Coordinate(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string Escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string Line(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + Coordinate(x1) + "\" y1=\"" + Coordinate(y1) + "\" x2=\"" + Coordinate(x2) +
         "\" y2=\"" + Coordinate(y2) + "\"/>\n";
}

std::string Label(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + Coordinate(x) + "\" y=\"" + Coordinate(y) + "\" text-anchor=\"" + anchor + "\">" +
         Escape(text) + "</text>\n";
}

using Value = std::optional<double> Point::*;

class Panel {
 public:
  Panel(const std::vector<Curve>& curves, Value value, double top)
      : curves_(curves), value_(value), top_(top), bottom_(top + kPanelHeight - kBottom) {
    for (const Curve& curve : curves) {
      for (const Point& point : curve.points) {
        if (!(point.*value)) continue;
        steps_.Add(static_cast<double>(point.step));
        values_.Add(*(point.*value));
      }
    }
    steps_ = Rounded(steps_);
    values_ = Rounded(values_);
  }

  std::string Draw(const std::string& title) const {
    std::string svg = "<g font-weight=\"bold\">" + Label(kLeft, top_ - 12, "start", title) + "</g>\n";
    svg += "<g stroke=\"#d8dce3\">\n";
    std::string labels;
    const double tick = TickStep(values_, 5);
    for (double value = values_.low; value <= values_.high + tick / 2; value += tick) {
      svg += Line(kLeft, Y(value), kWidth - kRight, Y(value));
      labels += Label(kLeft - 8, Y(value) + 4, "end", Number(std::abs(value) < tick / 1e6 ? 0 : value));
    }
    const double step_tick = TickStep(steps_, 8);
    for (double step = steps_.low; step <= steps_.high + step_tick / 2; step += step_tick) {
      svg += Line(X(step), bottom_, X(step), bottom_ + 5);
      labels += Label(X(step), bottom_ + 20, "middle", Number(step));
    }
    svg += "</g>\n" + labels;
    for (size_t i = 0; i < curves_.size(); ++i) svg += DrawCurve(curves_[i], kColors[i % kColors.size()]);
    return svg;
  }

 private:
  double X(double step) const { return kLeft + steps_.Share(step) * (kWidth - kRight - kLeft); }
  double Y(double value) const { return bottom_ - values_.Share(value) * (bottom_ - top_); }

  std::string DrawCurve(const Curve& curve, const char* color) const {
    std::string points;
    const size_t every = curve.points.size() / kMostPoints + 1;
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const Point& point = curve.points[i];
      const bool last = i + 1 == curve.points.size();
      if (!(point.*value_) || (i % every != 0 && !last)) continue;
      points += Coordinate(X(static_cast<double>(point.step))) + "," + Coordinate(Y(*(point.*value_))) + " ";
    }
    if (points.empty()) return {};
    return "<polyline fill=\"none\" stroke=\"" + std::string(color) + "\" stroke-width=\"1.5\" points=\"" +
           points + "\"/>\n";
  }

  const std::vector<Curve>& curves_;
  Value value_;
  double top_, bottom_;
  Range steps_, values_;
};

}  // namespace

std::string Plot(const std::vector<Curve>& curves) {
  const double legend = kTop + 20.0 * static_cast<double>(curves.size());
  const double height = legend + 2 * kPanelHeight + kTop;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + Number(kWidth) + "\" height=\"" +
                    Number(height) + "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#1c2330\">\n" +
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  for (size_t i = 0; i < curves.size(); ++i) {
    const double y = 28 + 20.0 * static_cast<double>(i);
    svg += "<g stroke-width=\"3\" stroke=\"" + std::string(kColors[i % kColors.size()]) + "\">" +
           Line(kLeft, y - 4, kLeft + 24, y - 4) + "</g>\n" + Label(kLeft + 32, y, "start", curves[i].name);
  }
  svg += Panel(curves, &Point::loss, legend + 10).Draw("loss over steps");
  svg +=
      Panel(curves, &Point::samples_per_second, legend + 10 + kPanelHeight + 20).Draw("samples/s over steps");
  return svg + "</svg>\n";
}

}  // namespace lockstep::history
