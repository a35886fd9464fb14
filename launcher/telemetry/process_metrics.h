#pragma once

#include <prometheus/metric_family.h>

#include <vector>

namespace lockstep::telemetry {

// The process_* metrics of the client libraries' specification, of this process as of now. What cannot be
// read is left out.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace lockstep::telemetry
