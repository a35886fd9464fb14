#include <algorithm>
#include <string>
#include <string_view>

#include "launcher/http/accept.h"
#include "launcher/telemetry/job_metrics.h"

namespace lockstep::telemetry {

MetricsFormat NegotiateMetricsFormat(std::string_view accept) {
  double open_metrics = 0;
  double text = 0;
  for (const http::Accepted& range : http::ParseAccepted(accept)) {
    const auto version = range.parameters.find("version");
    const auto is_version = [&](std::string_view ours) {
      return version == range.parameters.end() || version->second == ours;
    };
    if (range.value == "application/openmetrics-text" && is_version("1.0.0")) {
      open_metrics = std::max(open_metrics, range.q);
    }
    const bool is_text = range.value == "text/plain" && is_version("0.0.4");
    if (is_text || range.value == "text/*" || range.value == "*/*") text = std::max(text, range.q);
  }
  return open_metrics > 0 && open_metrics >= text ? MetricsFormat::kOpenMetrics
                                                  : MetricsFormat::kPrometheusText;
}

std::string_view MetricsContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace lockstep::telemetry
