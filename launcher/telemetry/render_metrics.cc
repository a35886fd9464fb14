#include "launcher/telemetry/render_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>

#include "launcher/telemetry/open_metrics.h"

namespace lockstep::telemetry {

std::string RenderMetrics(std::vector<prometheus::MetricFamily> families, MetricsFormat format) {
  std::sort(families.begin(), families.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (prometheus::MetricFamily& family : families) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
  }
  if (format == MetricsFormat::kOpenMetrics) return WriteOpenMetrics(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace lockstep::telemetry
