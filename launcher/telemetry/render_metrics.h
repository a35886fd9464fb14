#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "launcher/telemetry/job_metrics.h"

namespace lockstep::telemetry {

// The families as the text that `format` asks for, by name and labels: the library has them in the order of a
// hash table. Counters, gauges and histograms, in the text format 0.0.4 or as OpenMetrics 1.0.0
// (github.com/prometheus/OpenMetrics, specification/OpenMetrics.md), which prometheus-cpp does not write.
std::string RenderMetrics(std::vector<prometheus::MetricFamily> families, MetricsFormat format);

}  // namespace lockstep::telemetry
