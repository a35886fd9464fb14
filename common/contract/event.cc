#include "common/contract/event.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace lockstep::contract {

namespace {

using Json = nlohmann::json;

// Reads the members of one event; the first that is wrong makes the whole line malformed.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void Read(const char* key, int64_t& value) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_number_integer() || it->get<int64_t>() < 0 ||
        (it->is_number_unsigned() && it->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))) {
      return Fail(key, "a whole number that is not negative");
    }
    value = it->get<int64_t>();
  }
  void Read(const char* key, double& value) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_number() || !std::isfinite(it->get<double>())) return Fail(key, "a finite number");
    value = it->get<double>();
  }
  void Read(const char* key, std::string& value) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_string()) return Fail(key, "a string");
    value = it->get<std::string>();
  }
  void Read(const char* key, bool& value) {
    const auto it = object_.find(key);
    if (it == object_.end()) return;
    if (!it->is_boolean()) return Fail(key, "true or false");
    value = it->get<bool>();
  }

  template <typename T>
  Result<Event> Finish(T event) const {
    if (!error_.empty()) return InvalidArgument(error_);
    return Event(std::move(event));
  }

 private:
  void Fail(const char* key, const char* expected) {
    if (error_.empty()) error_ = std::string("event line: \"") + key + "\" is not " + expected;
  }

  const Json& object_;
  std::string error_;
};

// Each event's members in one place, for both directions. `Io` has operator()(key, member).
template <typename Io>
void Members(Io&& io, ReadyEvent& e) {
  io("regroups", e.regroups);
  io("layers", e.layers);
}
template <typename Io>
void Members(Io&& io, LayerEvent& e) {
  io("index", e.index);
  io("name", e.name);
  io("type", e.type);
  io("output", e.output);
  io("device", e.device);
}
template <typename Io>
void Members(Io&& io, RegroupEvent& e) {
  io("step", e.step);
}
template <typename Io>
void Members(Io&& io, PhaseEvent& e) {
  io("phase", e.phase);
}
template <typename Io>
void Members(Io&& io, StepEvent& e) {
  io("step", e.step);
  io("steps", e.steps);
  io("total_steps", e.total_steps);
  io("epoch", e.epoch);
  io("samples", e.samples);
  io("loss", e.loss);
  io("loss_average", e.loss_average);
  io("learning_rate", e.learning_rate);
  io("seconds", e.seconds);
  io("collective_seconds", e.collective_seconds);
  io("data_wait_seconds", e.data_wait_seconds);
  io("collective_bytes", e.collective_bytes);
  io("flops", e.flops);
  io("gradients_dropped", e.gradients_dropped);
  io("gradient_age", e.gradient_age);
}
template <typename Io>
void Members(Io&& io, EvaluationEvent& e) {
  io("split", e.split);
  io("epoch", e.epoch);
  io("loss", e.loss);
  io("accuracy", e.accuracy);
  io("seconds", e.seconds);
}
template <typename Io>
void Members(Io&& io, CheckpointEvent& e) {
  io("step", e.step);
  io("path", e.path);
  io("seconds", e.seconds);
  io("blocking_seconds", e.blocking_seconds);
  io("ok", e.ok);
  io("message", e.message);
}
template <typename Io>
void Members(Io&& io, MemoryEvent& e) {
  io("bytes", e.bytes);
  io("kind", e.kind);
}
template <typename Io>
void Members(Io&& io, ResumedEvent& e) {
  io("step", e.step);
}
template <typename Io>
void Members(Io&& io, ErrorEvent& e) {
  io("kind", e.kind);
  io("message", e.message);
}

constexpr const char* NameOf(const ReadyEvent&) { return "ready"; }
constexpr const char* NameOf(const PhaseEvent&) { return "phase"; }
constexpr const char* NameOf(const StepEvent&) { return "step"; }
constexpr const char* NameOf(const EvaluationEvent&) { return "evaluation"; }
constexpr const char* NameOf(const CheckpointEvent&) { return "checkpoint"; }
constexpr const char* NameOf(const MemoryEvent&) { return "memory"; }
constexpr const char* NameOf(const ResumedEvent&) { return "resumed"; }
constexpr const char* NameOf(const ErrorEvent&) { return "error"; }
constexpr const char* NameOf(const RegroupEvent&) { return "regroup"; }
constexpr const char* NameOf(const LayerEvent&) { return "layer"; }

template <typename T>
Result<Event> ReadAs(const Json& object) {
  T event;
  Reader reader(object);
  Members([&](const char* key, auto& member) { reader.Read(key, member); }, event);
  if constexpr (std::is_same_v<T, StepEvent>) {
    if (event.steps < 1) return InvalidArgument("event line: \"steps\" is not at least 1");
  }
  return reader.Finish(std::move(event));
}

template <size_t I = 0>
Result<Event> ReadByName(const std::string& name, const Json& object) {
  if constexpr (I == std::variant_size_v<Event>) {
    return InvalidArgument("event line: no such event");
  } else {
    using T = std::variant_alternative_t<I, Event>;
    return name == NameOf(T{}) ? ReadAs<T>(object) : ReadByName<I + 1>(name, object);
  }
}

void Put(Json& object, const char* key, double value) {
  if (std::isfinite(value)) object[key] = value;  // JSON knows no NaN; the reader keeps its default
}
template <typename T>
void Put(Json& object, const char* key, const T& value) {
  object[key] = value;
}

}  // namespace

std::string EncodeEvent(const Event& event) {
  Json object;
  std::visit(
      [&](auto copy) {
        object["event"] = NameOf(copy);
        Members([&](const char* key, const auto& member) { Put(object, key, member); }, copy);
      },
      event);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Event> ParseEvent(std::string_view line) {
  if (line.size() > kMaxEventBytes) return InvalidArgument("event line: longer than 64 KiB");
  // A recursive parser's depth is bounded by counting: an event has no nesting at all.
  if (std::count(line.begin(), line.end(), '[') + std::count(line.begin(), line.end(), '{') > 64) {
    return InvalidArgument("event line: nested too deeply");
  }
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("event line: not a JSON object");
  const auto name = object.find("event");
  if (name == object.end() || !name->is_string()) return InvalidArgument("event line: no \"event\"");
  return ReadByName(name->get<std::string>(), object);
}

}  // namespace lockstep::contract
