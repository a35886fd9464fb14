#include <CLI/CLI.hpp>
#include <iostream>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/spec/json.h"

namespace lockstep::cli {

void AddSchema(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("schema", "Print the JSON Schema of a manifest");
  command->callback([&action] {
    action = [] {
      std::cout << spec::Schema();
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
