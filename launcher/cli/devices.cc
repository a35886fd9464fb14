#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "common/contract/exit_codes.h"
#include "common/inherited_environment.h"
#include "launcher/cli/commands.h"
#include "launcher/placement/discover.h"
#include "launcher/placement/render.h"

namespace lockstep::cli {

void AddDevices(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("devices", "Show the processors and GPUs of this machine");
  auto format = std::make_shared<std::string>("text");
  command->add_option("-o,--output", *format, "text or json")->check(CLI::IsMember({"text", "json"}));
  command->callback([&action, format] {
    action = [format] {
      const placement::Inventory inventory =
          placement::Discover(placement::DiscoverOptionsFrom(InheritedEnvironment(), /*gpus=*/true));
      std::cout << (*format == "json" ? placement::RenderInventoryJson(inventory)
                                      : placement::RenderInventoryTable(inventory));
      return contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
