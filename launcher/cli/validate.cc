#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "launcher/cli/commands.h"
#include "launcher/spec/manifest.h"

namespace lockstep::cli {

void AddValidate(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("validate", "Check manifests; every error at once");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("FILE", *files, "manifests, or - for standard input")->required();
  command->callback(
      [&action, files] { action = [files] { return spec::ValidateFiles(*files, std::cout, std::cerr); }; });
}

}  // namespace lockstep::cli
