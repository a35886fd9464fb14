#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/spec/fields_job.h"

namespace lockstep::cli {

void AddVersion(CLI::App& app, Action& action) {
  app.set_version_flag("--version", "lockstep " LOCKSTEP_VERSION);
  auto* command = app.add_subcommand("version", "Print the version");
  auto format = std::make_shared<std::string>("text");
  command->add_option("-o,--output", *format, "text or json")->check(CLI::IsMember({"text", "json"}));
  command->callback([&action, format] {
    action = [format] {
      if (*format == "json") {
        const nlohmann::ordered_json version = {{"version", LOCKSTEP_VERSION},
                                                {"apiVersion", spec::kApiVersion}};
        std::cout << version.dump(2) << '\n';
      } else {
        std::cout << "lockstep " LOCKSTEP_VERSION "\n";
      }
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
