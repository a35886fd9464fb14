#include <CLI/CLI.hpp>
#include <iostream>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"

namespace lockstep::cli {

void AddVersion(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("version", "Print the version");
  command->callback([&action] {
    action = [] {
      std::cout << "lockstep " LOCKSTEP_VERSION "\n";
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
