#pragma once

#include <cstddef>

namespace lockstep::bench {

struct UpdateTimes {
  double plain_seconds = 0;
  double kept_seconds = 0;  // with each piece kept as it was, so that it can be done again
};

// Adam's update of so many parameters of a pipeline's stage by one rank of two, the fastest of many, by
// turns.
UpdateTimes MeasureUpdates(size_t parameters);

}  // namespace lockstep::bench
