#include "launcher/telemetry/curve.h"

#include <cmath>

namespace lockstep::telemetry {

bool Curve::Together(double earlier, double later) const {
  return std::floor(earlier / interval_) == std::floor(later / interval_);
}

void Curve::Merge(Stretch& into, const Stretch& later) {
  into.seconds = later.seconds;
  into.step = later.step;
  into.samples += later.samples;
  into.took += later.took;
  into.loss_sum += later.loss_sum;
  into.losses += later.losses;
}

void Curve::Add(const Step& step) {
  const Stretch next{.seconds = step.seconds,
                     .step = step.step,
                     .samples = step.samples,
                     .took = step.took,
                     .loss_sum = std::isnan(step.loss) ? 0 : step.loss,
                     .losses = std::isnan(step.loss) ? 0 : 1};
  if (!stretches_.empty() && Together(stretches_.back().seconds, next.seconds)) {
    return Merge(stretches_.back(), next);
  }
  stretches_.push_back(next);
  while (stretches_.size() > kMaxPoints) Halve();
}

void Curve::Halve() {
  interval_ *= 2;
  size_t kept = 0;
  for (size_t i = 1; i < stretches_.size(); ++i) {
    if (Together(stretches_[kept].seconds, stretches_[i].seconds)) {
      Merge(stretches_[kept], stretches_[i]);
    } else {
      stretches_[++kept] = stretches_[i];
    }
  }
  stretches_.resize(kept + 1);
}

std::vector<CurvePoint> Curve::points() const {
  std::vector<CurvePoint> points;
  points.reserve(stretches_.size());
  for (const Stretch& stretch : stretches_) {
    CurvePoint point{.seconds = stretch.seconds, .step = stretch.step};
    if (stretch.losses > 0) point.loss = stretch.loss_sum / static_cast<double>(stretch.losses);
    if (stretch.took > 0) point.samples_per_second = static_cast<double>(stretch.samples) / stretch.took;
    points.push_back(point);
  }
  return points;
}

}  // namespace lockstep::telemetry
