#include "launcher/telemetry/open_metrics.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace lockstep::telemetry {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// HELP and label values are escaped alike.
std::string Escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') result += '\\';
    result += c;
  }
  return result;
}

// The shortest form that reads back the same. `le` is to be a float even where it is whole ("1.0").
std::string Number(double value, bool as_float = false) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (as_float && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Labels(const ClientMetric& metric, const std::string& le = "") {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? "" : ",") + name + "=\"" + Escape(value) + "\"";
  };
  for (const auto& label : metric.label) add(label.name, label.value);
  if (!le.empty()) add("le", le);
  return text.empty() ? text : "{" + text + "}";
}

struct Name {
  std::string_view base;  // of the metadata
  std::string_view type;
  std::string_view suffix;  // of the samples
};

Name NameOf(const MetricFamily& family) {
  const std::string_view name = family.name;
  if (family.type == MetricType::Histogram) return {name, "histogram", ""};
  if (family.type == MetricType::Counter) return {name.substr(0, name.rfind("_total")), "counter", "_total"};
  if (name.ends_with("_info")) return {name.substr(0, name.rfind("_info")), "info", "_info"};
  return {name, "gauge", ""};
}

void WriteHistogram(const std::string& name, const ClientMetric& metric, std::string& out) {
  const auto& histogram = metric.histogram;
  for (const auto& bucket : histogram.bucket) {
    out += name + "_bucket" + Labels(metric, Number(bucket.upper_bound, true)) + " " +
           std::to_string(bucket.cumulative_count) + "\n";
  }
  // The bucket of infinity is the library's to give or to leave out; the specification wants it.
  if (histogram.bucket.empty() || !std::isinf(histogram.bucket.back().upper_bound)) {
    out += name + "_bucket" + Labels(metric, "+Inf") + " " + std::to_string(histogram.sample_count) + "\n";
  }
  out += name + "_count" + Labels(metric) + " " + std::to_string(histogram.sample_count) + "\n";
  out += name + "_sum" + Labels(metric) + " " + Number(histogram.sample_sum) + "\n";
}

}  // namespace

std::string WriteOpenMetrics(const std::vector<MetricFamily>& families) {
  std::string out;
  for (const MetricFamily& family : families) {
    const Name name = NameOf(family);
    const std::string base(name.base);
    out += "# TYPE " + base + " " + std::string(name.type) + "\n";
    for (const std::string_view unit : {"seconds", "bytes", "ratio"}) {
      if (base.ends_with("_" + std::string(unit))) out += "# UNIT " + base + " " + std::string(unit) + "\n";
    }
    out += "# HELP " + base + " " + Escape(family.help) + "\n";
    for (const ClientMetric& metric : family.metric) {
      if (family.type == MetricType::Histogram) {
        WriteHistogram(base, metric, out);
        continue;
      }
      const double value = family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
      out += base + std::string(name.suffix) + Labels(metric) + " " + Number(value) + "\n";
    }
  }
  return out + "# EOF\n";
}

}  // namespace lockstep::telemetry
