#include "launcher/history/run.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/wall_time.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::history {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::streamsize kLongestStatus = 16 << 20;

Json Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

std::string Text(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? telemetry::Printable(found->get<std::string>()) : "";
}

std::optional<double> Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return {};
  return found->get<double>();
}

int64_t Integer(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Seconds between two times in RFC 3339, to the second.
std::optional<double> Between(const std::string& start, const std::string& end) {
  const auto from = ParseTime(start);
  const auto to = ParseTime(end);
  if (!from || !to) return {};
  return std::chrono::duration<double>(*to - *from).count();
}

// "rank 2, exit code 137": what an event has besides its time and its name.
std::string Details(const Json& event) {
  std::string text;
  for (const auto& [key, value] : event.items()) {
    if (key == "time" || key == "event") continue;
    std::string name;
    for (const char c : key) {
      if (c >= 'A' && c <= 'Z') name += ' ';
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    std::string shown = value.dump();
    if (value.is_string()) shown = telemetry::Printable(value.get<std::string>());
    if (value.is_number_float()) shown = telemetry::FormatDecimals(value.get<double>(), 4);
    text += (text.empty() ? "" : ", ") + telemetry::Printable(name) + " " + shown;
  }
  return text;
}

}  // namespace

Result<Run> ReadRun(const std::string& folder) {
  std::ifstream file(folder + "/status.json", std::ios::binary);
  if (!file) return NotFound(folder + " is no run's folder: it has no status.json");
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (static_cast<std::streamsize>(text.size()) > kLongestStatus) {
    return ResourceExhausted(folder + "/status.json is longer than any of ours");
  }
  const Json json = Parse(text);
  const Json progress = json.value("progress", Json::object());
  Run run{.folder = folder, .status_text = std::move(text)};
  run.name = Text(json, "name") + "/" + fs::path(folder).filename().string();
  run.phase = Text(json, "phase");
  run.start_time = Text(json, "startTime");
  run.took_seconds = Between(run.start_time, Text(json, "completionTime"));
  if (progress.contains("step")) run.step = Integer(progress, "step");
  run.loss = Text(progress, "loss");
  run.accuracy = Text(progress, "accuracy");
  run.restarts = static_cast<int>(Integer(json, "restarts"));
  return run;
}

std::vector<Point> ReadPoints(const std::string& folder) {
  std::vector<Point> points;
  std::ifstream file(folder + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = Parse(line);
    const auto seconds = Number(json, "seconds");
    if (!seconds) continue;
    points.push_back({.seconds = *seconds,
                      .step = Integer(json, "step"),
                      .loss = Number(json, "loss"),
                      .accuracy = Number(json, "accuracy"),
                      .samples_per_second = Number(json, "samplesPerSecond")});
  }
  return points;
}

std::vector<std::string> ReadEvents(const std::string& folder, size_t most) {
  std::deque<std::string> events;
  std::ifstream file(folder + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = Parse(line);
    const std::string time = Text(json, "time");
    if (time.size() < 19) continue;
    std::string event = Text(json, "event");
    event.resize(std::max<size_t>(event.size(), 11), ' ');
    events.push_back(time.substr(11, 8) + "  " + event + "  " + Details(json));
    if (events.size() > most) events.pop_front();
  }
  return {events.begin(), events.end()};
}

}  // namespace lockstep::history
