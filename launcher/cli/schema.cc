#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/spec/crd.h"
#include "launcher/spec/json.h"

namespace lockstep::cli {

void AddSchema(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("schema", "Print the JSON Schema of a manifest");
  auto crd = std::make_shared<bool>(false);
  command->add_flag("--crd", *crd, "Print the CustomResourceDefinition for a cluster, as YAML, instead");
  command->callback([&action, crd] {
    action = [crd] {
      std::cout << (*crd ? spec::CustomResourceDefinition() : spec::Schema());
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
