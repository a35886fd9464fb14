#include "launcher/telemetry/run_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/wall_time.h"
#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/tensorboard_event.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::telemetry {

namespace {

using Json = nlohmann::ordered_json;

// Numbers that JSON does not have are left out.
void AddNumber(Json& json, const char* key, double value) {
  if (std::isfinite(value)) json[key] = value;
}

Json EventJson(RunRecord::WallTime time, std::string_view event) {
  return {{"time", FormatTime(time, TimeParts::kMilliseconds)}, {"event", event}};
}

// (What programs wrote need not be UTF-8.)
std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

RunRecord::RunRecord(const std::string& folder, std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)),
      metrics_(Open(folder + "/metrics.jsonl")),
      events_(Open(folder + "/events.jsonl")),
      tensorboard_(OpenTensorboard(folder + "/tensorboard")) {
  Append(tensorboard_, VersionRecord(std::chrono::system_clock::now()));
}

UniqueFd RunRecord::Open(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file) WarnOnce(std::strerror(errno));
  return file;
}

// TensorBoard wants the files of a run in the order in which they were begun.
UniqueFd RunRecord::OpenTensorboard(const std::string& folder) {
  ::mkdir(folder.c_str(), 0700);
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return Open(folder + "/events.out.tfevents." + std::to_string(now) + "." + host.data() + "." +
              std::to_string(::getpid()));
}

void RunRecord::WarnOnce(const std::string& why) {
  if (!std::exchange(warned_, true)) warn_("the run's metrics and events are not kept: " + why);
}

void RunRecord::Step(const Progress& progress, double seconds) {
  if (!WantsStep(progress.step)) return;
  WriteStep(progress, seconds);
  if (++lines_ % kLinesAStride == 0) stride_ *= 2;
  next_step_ = progress.step + stride_;
}

void RunRecord::WriteStep(const Progress& progress, double seconds) {
  last_step_ = progress.step;
  Json json = {{"time", FormatTime(progress.last_updated, TimeParts::kMilliseconds)},
               {"seconds", std::round(seconds * 1e3) / 1e3}};
  json["step"] = progress.step;
  json["epoch"] = progress.epoch;
  if (progress.loss) AddNumber(json, "loss", *progress.loss);
  if (progress.loss_average) AddNumber(json, "lossAverage", *progress.loss_average);
  if (progress.accuracy) AddNumber(json, "accuracy", *progress.accuracy);
  AddNumber(json, "learningRate", progress.learning_rate);
  if (progress.samples_per_second)
    AddNumber(json, "samplesPerSecond", std::round(*progress.samples_per_second));
  Append(metrics_, LineOf(json));

  std::vector<Scalar> scalars = {{"learning_rate", progress.learning_rate}};
  if (progress.loss) scalars.push_back({"loss/batch", *progress.loss});
  if (progress.loss_average) scalars.push_back({"loss/average", *progress.loss_average});
  if (progress.samples_per_second) scalars.push_back({"samples_per_second", *progress.samples_per_second});
  Append(tensorboard_, ScalarsRecord(progress.last_updated, progress.step, scalars));
}

void RunRecord::Generation(int generation, WallTime time) {
  Json json = EventJson(time, "Generation");
  json["generation"] = generation;
  WriteEvent(LineOf(json));
}

void RunRecord::Graph(const std::vector<GraphNode>& nodes, WallTime time) {
  std::string graph = nodes.empty() ? "" : GraphDef(nodes);
  if (graph.empty() || graph == graph_) return;
  graph_ = std::move(graph);
  Append(tensorboard_, GraphRecord(time, graph_));
}

void RunRecord::RankExited(int rank, int exit_code, WallTime time) {
  Json json = EventJson(time, "RankExited");
  json["rank"] = rank;
  json["exitCode"] = exit_code;
  WriteEvent(LineOf(json));
}

void RunRecord::Restarting(std::string_view reason, const Failure* failure, WallTime time) {
  Json json = EventJson(time, "Restarting");
  json["reason"] = reason;
  if (failure != nullptr) {
    if (failure->rank >= 0) json["rank"] = failure->rank;
    json["message"] = failure->message;
  }
  WriteEvent(LineOf(json));
}

void RunRecord::Evaluation(const contract::EvaluationEvent& event, int64_t step, WallTime time) {
  Json json = EventJson(time, "Evaluation");
  json["split"] = event.split;
  json["epoch"] = event.epoch;
  AddNumber(json, "loss", event.loss);
  if (event.accuracy >= 0) AddNumber(json, "accuracy", event.accuracy);
  AddNumber(json, "seconds", event.seconds);
  if (!WriteEvent(LineOf(json))) return;
  const std::string loss = "loss/" + event.split, accuracy = "accuracy/" + event.split;
  std::vector<Scalar> scalars = {{loss, event.loss}};
  if (event.accuracy >= 0) scalars.push_back({accuracy, event.accuracy});
  Append(tensorboard_, ScalarsRecord(time, step, scalars));
}

void RunRecord::Checkpoint(const contract::CheckpointEvent& event, WallTime time) {
  Json json = EventJson(time, "Checkpoint");
  json["step"] = event.step;
  json["path"] = event.path;
  AddNumber(json, "seconds", event.seconds);
  json["ok"] = event.ok;
  if (!event.ok) json["message"] = event.message;
  WriteEvent(LineOf(json));
}

void RunRecord::Resumed(int64_t step, WallTime time) {
  Json json = EventJson(time, "Resumed");
  json["step"] = step;
  WriteEvent(LineOf(json));
}

void RunRecord::Finished(bool succeeded, const Progress* progress, double seconds, WallTime time) {
  if (progress != nullptr && progress->step != last_step_) WriteStep(*progress, seconds);
  Json json = EventJson(time, "Finished");
  json["succeeded"] = succeeded;
  WriteEvent(LineOf(json), /*last=*/true);
}

bool RunRecord::WriteEvent(const std::string& line, bool last) {
  if (event_count_ >= kMostEvents && !last) return false;
  ++event_count_;
  Append(events_, line);
  return true;
}

void RunRecord::Append(const UniqueFd& file, const std::string& line) {
  if (!file) return;
  const ssize_t written = ::write(file.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const std::string why = written < 0 ? std::strerror(errno) : "no room";
  // Half a line would spoil the next one.
  struct stat now {};
  if (written > 0 && ::fstat(file.get(), &now) == 0) {
    [[maybe_unused]] const int cut = ::ftruncate(file.get(), now.st_size - written);
  }
  WarnOnce(why);
}

}  // namespace lockstep::telemetry
