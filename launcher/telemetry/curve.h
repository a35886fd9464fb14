#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::telemetry {

// A stretch of steps, as one point of a curve.
struct CurvePoint {
  double seconds = 0;                        // from the job's start to the last step in it
  int64_t step = 0;                          // that one
  std::optional<double> loss;                // the mean of those that were told in it; empty: none was
  std::optional<double> samples_per_second;  // empty: the steps took no measurable time
};

// Loss and throughput over a whole run, however long, in at most kMaxPoints points: each stands for the same
// stretch of time, which doubles, and neighbours become one, whenever there would be more. A stretch without
// a step has no point. Not thread-safe.
class Curve {
 public:
  static constexpr size_t kMaxPoints = 400;

  // Step number `step` was done `seconds` after the job's start, which is not before the last one's. `took`
  // is the time that its `samples` (or those of the steps that are told together) were trained in; a loss
  // that is NaN was not told.
  struct Step {
    double seconds = 0;
    int64_t step = 0;
    int64_t samples = 0;
    double took = 0;
    double loss = 0;
  };
  void Add(const Step& step);

  std::vector<CurvePoint> points() const;

 private:
  struct Stretch {
    double seconds = 0;
    int64_t step = 0;
    int64_t samples = 0;
    double took = 0;
    double loss_sum = 0;
    int64_t losses = 0;
  };

  // Whether both lie in one stretch of time.
  bool Together(double earlier, double later) const;
  void Halve();
  static void Merge(Stretch& into, const Stretch& later);

  double interval_ = 0.1;  // seconds
  std::vector<Stretch> stretches_;
};

}  // namespace lockstep::telemetry
