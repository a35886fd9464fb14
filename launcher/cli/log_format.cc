#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "common/log.h"
#include "launcher/cli/commands.h"

namespace lockstep::cli {

void AddLogFormat(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--log-format",
          [](const std::string& name) {
            log::SetFormat(name == "json" ? log::Format::kJson : log::Format::kText);
          },
          "text, or json: each line an object, the ranks' too")
      ->check(CLI::IsMember({"text", "json"}))
      ->envname("LOCKSTEP_LOG_FORMAT");
}

}  // namespace lockstep::cli
