#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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
    made->set_pattern("%n: %l: %v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

void Initialize(Level lowest, std::string_view name) {
  Logger().set_level(ToSpdlog(lowest));
  Logger().set_pattern("%H:%M:%S.%e " + std::string(name) + ": %l: %v");
}

void Debug(std::string_view message) { Logger().debug("{}", message); }
void Info(std::string_view message) { Logger().info("{}", message); }
void Warning(std::string_view message) { Logger().warn("{}", message); }
void Error(std::string_view message) { Logger().error("{}", message); }

}  // namespace lockstep::log
