#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "common/wall_time.h"

namespace lockstep::log {

namespace {

spdlog::level::level_enum ToSpdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made =
        std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%n: %l: %v");  // until Initialize
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

std::atomic<Format> chosen_format = Format::kText;

std::string& Name() {
  static std::string name = "lockstep";
  return name;
}

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
  }
  return "info";
}

void Write(Level level, std::string_view message) {
  if (!Logger().should_log(ToSpdlog(level))) return;
  if (format() == Format::kText) return Logger().log(ToSpdlog(level), "{}", message);
  Logger().log(ToSpdlog(level), "{}", JsonLine(level, Name(), message));
}

void SetPattern() {
  Logger().set_pattern(format() == Format::kJson ? "%v" : "%H:%M:%S.%e " + Name() + ": %l: %v");
}

}  // namespace

void Initialize(Level lowest, std::string_view name) {
  Name() = name;
  Logger().set_level(ToSpdlog(lowest));
  SetPattern();
}

void SetFormat(Format format) {
  chosen_format = format;
  SetPattern();
}

Format format() { return chosen_format; }

void Debug(std::string_view message) { Write(Level::kDebug, message); }
void Info(std::string_view message) { Write(Level::kInfo, message); }
void Warning(std::string_view message) { Write(Level::kWarning, message); }
void Error(std::string_view message) { Write(Level::kError, message); }

std::string Line(Level level, std::string_view source, std::string_view message) {
  if (format() == Format::kJson) return JsonLine(level, source, message);
  return std::string(source).append(": ").append(message);
}

void WriteLine(Level level, std::string_view source, std::string_view message) {
  const std::string line = Line(level, source, message) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::string JsonLine(Level level, std::string_view source, std::string_view message, const Fields& fields) {
  nlohmann::ordered_json json = {
      {"time", FormatTime(std::chrono::system_clock::now(), TimeParts::kMilliseconds)},
      {"level", LevelName(level)},
      {"source", source},
      {"message", message}};
  for (const auto& field : fields) {
    std::visit([&](const auto& value) { json[std::string(field.first)] = value; }, field.second);
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep::log
