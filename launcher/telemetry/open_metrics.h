#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

namespace lockstep::telemetry {

// OpenMetrics 1.0.0 text (github.com/prometheus/OpenMetrics, specification/OpenMetrics.md), which
// prometheus-cpp does not write: counters are announced without "_total", a gauge called "…_info" becomes an
// info, units are named, and
// "# EOF" ends it. Counters, gauges and histograms.
std::string WriteOpenMetrics(const std::vector<prometheus::MetricFamily>& families);

}  // namespace lockstep::telemetry
