#include "launcher/agent/inject.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/operator/names.h"

// What the init container of a pod with `launcher.inject` runs. Not for people, and so in no help.
namespace lockstep::cli {

void AddInject(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("inject", "Copy the launcher to where another image has it")->group("");
  auto folder = std::make_shared<std::string>();
  command->add_option("FOLDER", *folder, "the volume")->required();
  command->callback([&action, folder] {
    action = [folder] {
      const Status status = agent::CopyLauncher(op::kLauncherFolder, *folder);
      return status.ok() ? contract::kExitDone : Complain(status.message(), kExitFailed);
    };
  });
}

}  // namespace lockstep::cli
