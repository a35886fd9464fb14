#include "common/contract/control_line.h"

#include <nlohmann/json.hpp>

namespace lockstep::contract {

namespace {

using Json = nlohmann::json;

constexpr char kControl[] = "control";
constexpr char kRegroupName[] = "regroup";
constexpr char kGenerationName[] = "generation";
constexpr char kEnvironment[] = "environment";

// Empty: `name` may be a variable with `value`.
std::string WhyNoVariable(const std::string& name, const std::string& value) {
  if (name.empty()) return "a variable without a name";
  if (name.find('=') != std::string::npos) return "a variable's name with \"=\" in it";
  if (name.find('\0') != std::string::npos || value.find('\0') != std::string::npos) {
    return "a variable with a zero byte in it";
  }
  return "";
}

Result<Control> ReadGeneration(const Json& object) {
  const auto environment = object.find(kEnvironment);
  if (environment == object.end() || !environment->is_object() || environment->empty()) {
    return InvalidArgument("control line: a generation without its \"environment\"");
  }
  GenerationControl control;
  for (const auto& [name, value] : environment->items()) {
    if (!value.is_string()) return InvalidArgument("control line: " + name + " is not a string");
    const auto& text = value.get_ref<const std::string&>();
    if (const std::string why = WhyNoVariable(name, text); !why.empty()) {
      return InvalidArgument("control line: " + why);
    }
    control.environment.emplace(name, text);
  }
  return Control(std::move(control));
}

}  // namespace

Result<std::string> EncodeControl(const Control& control) {
  Json object;
  if (const auto* generation = std::get_if<GenerationControl>(&control)) {
    object[kControl] = kGenerationName;
    if (generation->environment.empty()) return InvalidArgument("control line: no environment");
    for (const auto& [name, value] : generation->environment) {
      if (const std::string why = WhyNoVariable(name, value); !why.empty()) {
        return InvalidArgument("control line: " + why);
      }
    }
    object[kEnvironment] = generation->environment;
  } else {
    object[kControl] = kRegroupName;
  }
  std::string line;
  try {
    line = object.dump() + "\n";
  } catch (const Json::exception&) {  // JSON has no other bytes
    return InvalidArgument("control line: a variable that is not UTF-8");
  }
  if (line.size() > kMaxControlBytes) return InvalidArgument("control line: longer than 64 KiB");
  return line;
}

Result<Control> ParseControl(std::string_view line) {
  if (line.size() >= kMaxControlBytes) return InvalidArgument("control line: longer than 64 KiB");
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("control line: not a JSON object");
  const auto name = object.find(kControl);
  if (name == object.end() || !name->is_string()) return InvalidArgument("control line: no \"control\"");
  if (*name == kRegroupName) return Control(RegroupControl{});
  if (*name == kGenerationName) return ReadGeneration(object);
  return InvalidArgument("control line: no such control");
}

}  // namespace lockstep::contract
