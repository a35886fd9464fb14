#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>

#include "launcher/telemetry/job_metrics.h"

namespace lockstep::telemetry {

namespace {

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Takes the part before `separator` off the front.
std::string_view TakePart(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return Trim(part);
}

struct MediaRange {
  std::string type;
  std::string version;
  double q = 1;
};

MediaRange ParseMediaRange(std::string_view text) {
  const auto lower = [](std::string_view from) {
    std::string result(from);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return result;
  };
  MediaRange range{.type = lower(TakePart(text, ';')), .version = "", .q = 1};
  while (!text.empty()) {
    std::string_view value = TakePart(text, ';');
    const std::string name = lower(TakePart(value, '='));
    if (name == "version") range.version = value;
    if (name == "q") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), range.q);
      if (error != std::errc() || end != value.data() + value.size() || !(range.q >= 0 && range.q <= 1))
        range.q = 0;
    }
  }
  return range;
}

}  // namespace

MetricsFormat NegotiateMetricsFormat(std::string_view accept) {
  double open_metrics = 0;
  double text = 0;
  while (!accept.empty()) {
    const MediaRange range = ParseMediaRange(TakePart(accept, ','));
    if (range.type == "application/openmetrics-text" && (range.version.empty() || range.version == "1.0.0")) {
      open_metrics = std::max(open_metrics, range.q);
    }
    const bool is_text = range.type == "text/plain" && (range.version.empty() || range.version == "0.0.4");
    if (is_text || range.type == "text/*" || range.type == "*/*") text = std::max(text, range.q);
  }
  return open_metrics > 0 && open_metrics >= text ? MetricsFormat::kOpenMetrics
                                                  : MetricsFormat::kPrometheusText;
}

std::string_view MetricsContentType(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace lockstep::telemetry
