#include "launcher/telemetry/render_metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace lockstep::telemetry {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Label values are escaped alike in both formats; of a HELP only OpenMetrics escapes the quotes.
std::string Escape(std::string_view text, bool quotes = true) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || (c == '"' && quotes)) result += '\\';
    result += c;
  }
  return result;
}

// The shortest form that reads back the same. `le` is to be a float even where it is whole ("1.0").
void AddNumber(double value, bool as_float, std::string& out) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    char buffer[32];
    const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
    const std::string_view text(buffer, static_cast<size_t>(end - buffer));
    out += text;
    if (as_float && text.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
}

// `a="b",c="d"`: once for all the lines of a series, most of which are buckets.
std::string LabelsOf(const ClientMetric& metric) {
  std::string text;
  for (const auto& label : metric.label) {
    if (!text.empty()) text += ',';
    text.append(label.name).append("=\"").append(Escape(label.value)).append("\"");
  }
  return text;
}

struct Name {
  std::string base;  // of the metadata
  std::string_view type;
  std::string series;  // of the samples
};

// OpenMetrics announces counters without "_total", and a gauge called "…_info" is an info.
Name NameOf(const MetricFamily& family, MetricsFormat format) {
  const std::string& name = family.name;
  if (family.type == MetricType::Histogram) return {name, "histogram", name};
  const bool counter = family.type == MetricType::Counter;
  if (format == MetricsFormat::kPrometheusText) return {name, counter ? "counter" : "gauge", name};
  if (counter) return {name.substr(0, name.rfind("_total")), "counter", name};
  if (name.ends_with("_info")) return {name.substr(0, name.rfind("_info")), "info", name};
  return {name, "gauge", name};
}

class Writer {
 public:
  explicit Writer(MetricsFormat format) : format_(format) {}

  void Add(const MetricFamily& family) {
    const Name name = NameOf(family, format_);
    out_.append("# TYPE ").append(name.base).append(" ").append(name.type).append("\n");
    if (format_ == MetricsFormat::kOpenMetrics) {
      for (const std::string_view unit : {"seconds", "bytes", "ratio"}) {
        if (name.base.ends_with("_" + std::string(unit))) {
          out_.append("# UNIT ").append(name.base).append(" ").append(unit).append("\n");
        }
      }
    }
    out_.append("# HELP ").append(name.base).append(" ");
    out_.append(Escape(family.help, format_ == MetricsFormat::kOpenMetrics)).append("\n");
    for (const ClientMetric& metric : family.metric) {
      const std::string labels = LabelsOf(metric);
      if (family.type == MetricType::Histogram) {
        AddHistogram(name.series, labels, metric.histogram);
      } else {
        AddSample(name.series, "", labels,
                  family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value);
      }
    }
  }

  std::string Finish() {
    if (format_ == MetricsFormat::kOpenMetrics) out_ += "# EOF\n";
    return std::move(out_);
  }

 private:
  void AddHistogram(std::string_view name, const std::string& labels,
                    const ClientMetric::Histogram& histogram) {
    for (const auto& bucket : histogram.bucket)
      AddBucket(name, labels, bucket.upper_bound, bucket.cumulative_count);
    // The bucket of infinity is the library's to give or to leave out; the specifications want it.
    if (histogram.bucket.empty() || !std::isinf(histogram.bucket.back().upper_bound)) {
      AddBucket(name, labels, INFINITY, histogram.sample_count);
    }
    AddSeries(name, "_count", labels);
    out_.append(std::to_string(histogram.sample_count)).append("\n");
    AddSample(name, "_sum", labels, histogram.sample_sum);
  }

  void AddBucket(std::string_view name, const std::string& labels, double bound, uint64_t count) {
    out_.append(name).append("_bucket{").append(labels).append(labels.empty() ? "le=\"" : ",le=\"");
    AddNumber(bound, format_ == MetricsFormat::kOpenMetrics, out_);
    out_.append("\"} ").append(std::to_string(count)).append("\n");
  }

  void AddSample(std::string_view name, std::string_view suffix, const std::string& labels, double value) {
    AddSeries(name, suffix, labels);
    AddNumber(value, false, out_);
    out_ += '\n';
  }

  void AddSeries(std::string_view name, std::string_view suffix, const std::string& labels) {
    out_.append(name).append(suffix);
    if (!labels.empty()) out_.append("{").append(labels).append("}");
    out_ += ' ';
  }

  const MetricsFormat format_;
  std::string out_;
};

}  // namespace

std::string RenderMetrics(std::vector<MetricFamily> families, MetricsFormat format) {
  std::sort(families.begin(), families.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  Writer writer(format);
  for (MetricFamily& family : families) {
    std::sort(family.metric.begin(), family.metric.end(),
              [](const auto& a, const auto& b) { return a.label < b.label; });
    writer.Add(family);
  }
  return writer.Finish();
}

}  // namespace lockstep::telemetry
