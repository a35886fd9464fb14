#include "launcher/telemetry/status_document.h"

#include <time.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/wall_time.h"

namespace lockstep::telemetry {

namespace {

using Json = nlohmann::ordered_json;

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

Json ProgressJson(const Progress& progress) {
  Json json;
  json["step"] = progress.step;
  if (progress.total_steps > 0) json["totalSteps"] = progress.total_steps;
  if (progress.percentage) json["percentage"] = *progress.percentage;
  if (progress.remaining_seconds) {
    json["estimatedRemainingSeconds"] =
        static_cast<int64_t>(std::ceil(std::min(*progress.remaining_seconds, 1e15)));
  }
  if (progress.samples_per_second) json["samplesPerSecond"] = Format("%.0f", *progress.samples_per_second);
  json["epoch"] = progress.epoch;
  if (progress.loss) json["loss"] = Format("%.6g", *progress.loss);
  if (progress.loss_average) json["lossAverage"] = Format("%.6g", *progress.loss_average);
  if (progress.accuracy) json["accuracy"] = Format("%.4f", *progress.accuracy);
  json["lastUpdatedTime"] = FormatTime(progress.last_updated);
  return json;
}

Json FailureJson(const Failure& failure) {
  Json json;
  json["replica"] = failure.replica;
  json["process"] = failure.process;
  if (failure.rank >= 0) json["rank"] = failure.rank;
  if (!failure.role.empty()) json["role"] = failure.role;
  if (failure.role_rank >= 0) json["roleRank"] = failure.role_rank;
  if (failure.exit_code) json["exitCode"] = *failure.exit_code;
  json["reason"] = failure.reason;
  json["message"] = failure.message;
  json["time"] = FormatTime(failure.time);
  if (!failure.last_lines.empty()) json["lastLines"] = failure.last_lines;
  return json;
}

Json GenerationJson(const GenerationRecord& record) {
  Json json;
  json["generation"] = record.generation;
  json["worldSize"] = record.world_size;
  json["startSeconds"] = Format("%.3f", record.began);
  if (record.restarted_alone > 0) json["restartedAlone"] = record.restarted_alone;
  if (!record.ended) return json;
  json["endSeconds"] = Format("%.3f", *record.ended);
  if (!record.reason.empty()) json["reason"] = record.reason;
  if (!record.message.empty()) json["message"] = record.message;
  return json;
}

// To so many digits: the shortest text that says no more than can be seen.
double Rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

Json CurvesJson(const std::vector<CurvePoint>& points) {
  Json seconds = Json::array(), step = Json::array(), loss = Json::array(), rate = Json::array();
  for (const CurvePoint& point : points) {
    seconds.push_back(std::round(point.seconds * 1e3) / 1e3);
    step.push_back(point.step);
    loss.push_back(point.loss ? Json(Rounded(*point.loss, 6)) : Json());
    rate.push_back(point.samples_per_second ? Json(Rounded(*point.samples_per_second, 5)) : Json());
  }
  return {{"seconds", std::move(seconds)},
          {"step", std::move(step)},
          {"loss", std::move(loss)},
          {"samplesPerSecond", std::move(rate)}};
}

Json RankDeviceJson(const RankDevice& device) {
  Json json = {{"type", device.type}, {"devices", device.devices}};
  if (device.shared) json["shared"] = true;
  return json;
}

Json MemoryJson(const RankSnapshot& rank) {
  const RankDevice& device = rank.identity.device;
  Json json = {{"policy", device.memory_policy}};
  if (device.memory_limit) json["limitBytes"] = *device.memory_limit;
  if (device.memory_fraction) json["fraction"] = Format("%.4g", *device.memory_fraction);
  if (device.held_by_mps) json["enforce"] = "MPS";
  if (rank.memory_held) json["heldBytes"] = *rank.memory_held;
  if (rank.memory_peak) json["peakBytes"] = *rank.memory_peak;
  return json;
}

Json DeviceJson(const DeviceSnapshot& device) {
  Json json = {{"index", device.index}, {"uuid", device.uuid}, {"name", device.name}};
  if (device.memory_bytes > 0) json["memoryBytes"] = device.memory_bytes;
  if (device.memory_used) json["memoryUsedBytes"] = *device.memory_used;
  if (device.utilization) json["utilization"] = Format("%.2f", *device.utilization);
  if (device.power_watts) json["powerWatts"] = Format("%.1f", *device.power_watts);
  if (device.temperature) json["temperatureCelsius"] = Format("%.0f", *device.temperature);
  if (device.ecc_errors) json["eccUncorrectedErrors"] = *device.ecc_errors;
  json["throttled"] = device.throttled;
  json["xidErrors"] = device.xid_errors;
  if (device.last_xid != 0) json["lastXid"] = device.last_xid;
  if (!device.trouble.empty()) json["trouble"] = device.trouble;
  if (device.left_out) json["leftOut"] = true;
  return json;
}

Json RankJson(const RankSnapshot& rank) {
  Json json;
  json["rank"] = rank.identity.rank;
  json["role"] = rank.identity.role;
  json["roleRank"] = rank.identity.role_rank;
  json["replica"] = rank.identity.replica;
  json["process"] = rank.identity.process;
  json["state"] = RankStateName(rank.state);
  if (rank.pid > 0) json["pid"] = rank.pid;
  json["restarts"] = rank.restarts;
  if (!rank.layers.empty()) json["layers"] = rank.layers;
  json["phase"] = RankPhaseName(rank.phase);
  json["step"] = rank.step;
  if (rank.step_seconds > 0) {
    json["stepSeconds"] = Format("%.6g", rank.step_seconds);
    json["collectiveSeconds"] = Format("%.6g", rank.collective_seconds);
  }
  if (rank.delay) json["delaySeconds"] = Format("%.6g", *rank.delay);
  if (rank.memory_bytes) json["memoryBytes"] = *rank.memory_bytes;
  if (!rank.identity.device.type.empty()) json["device"] = RankDeviceJson(rank.identity.device);
  if (!rank.identity.device.memory_policy.empty()) json["memory"] = MemoryJson(rank);
  if (rank.exit_code) json["exitCode"] = *rank.exit_code;
  return json;
}

}  // namespace

std::string StatusDocument(const JobSnapshot& snapshot, const std::optional<std::vector<CurvePoint>>& curve) {
  const JobDescription& description = snapshot.description;
  Json json;
  json["name"] = description.name;
  json["namespace"] = description.namespace_name;
  json["strategy"] = description.strategy;
  json["framework"] = description.framework;
  json["worldSize"] = description.world_size;
  json["replicas"] = {{"desired", description.replicas},
                      {"running", description.replicas - static_cast<int>(snapshot.left_out.size())},
                      {"leftOut", snapshot.left_out}};
  json["phase"] = JobPhaseName(snapshot.phase);
  json["ready"] = snapshot.ready;
  json["attempt"] = description.attempt;
  json["generation"] = snapshot.generation;
  json["restarts"] = snapshot.restarts;
  json["startTime"] = FormatTime(snapshot.start_time);
  if (snapshot.completion_time) json["completionTime"] = FormatTime(*snapshot.completion_time);
  json["elapsedSeconds"] = Format("%.3f", snapshot.elapsed_seconds);
  if (snapshot.progress) json["progress"] = ProgressJson(*snapshot.progress);
  if (snapshot.goodput) json["goodput"] = Format("%.4f", *snapshot.goodput);
  json["productiveSeconds"] = Format("%.3f", snapshot.time.productive);
  json["lostSeconds"] = Json::object();
  for (size_t i = 0; i < kLossNames.size(); ++i) {
    json["lostSeconds"][std::string(kLossNames[i])] = Format("%.3f", snapshot.time.lost[i]);
  }
  if (snapshot.straggler) {
    json["straggler"] = {{"rank", snapshot.straggler->rank},
                         {"delaySeconds", Format("%.6g", snapshot.straggler->delay)}};
  }
  if (snapshot.last_failure) json["lastFailure"] = FailureJson(*snapshot.last_failure);
  json["malformedEvents"] = snapshot.malformed_events;
  json["ranks"] = Json::array();
  for (const RankSnapshot& rank : snapshot.ranks) json["ranks"].push_back(RankJson(rank));
  if (!snapshot.devices.empty()) json["devices"] = Json::array();
  for (const DeviceSnapshot& device : snapshot.devices) json["devices"].push_back(DeviceJson(device));
  json["generations"] = Json::array();
  for (const GenerationRecord& record : snapshot.generations) {
    json["generations"].push_back(GenerationJson(record));
  }
  if (snapshot.generations_forgotten > 0) json["generationsForgotten"] = snapshot.generations_forgotten;
  if (curve) json["curves"] = CurvesJson(*curve);
  // What programs wrote need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::telemetry
