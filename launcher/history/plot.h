#pragma once

#include <string>
#include <vector>

#include "launcher/history/run.h"

namespace lockstep::history {

struct Curve {
  std::string name;
  std::vector<Point> points;
};

// An SVG picture of the loss and of the throughput over the steps, a line each run.
std::string Plot(const std::vector<Curve>& curves);

}  // namespace lockstep::history
