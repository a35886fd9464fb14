#include <CLI/CLI.hpp>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  CLI::App app("Starts, watches and restarts training jobs that run as several processes.", "lockstep");
  app.require_subcommand(1);
  cli::Action action;
  cli::AddInit(app, action);
  cli::AddRun(app, action);
  cli::AddValidate(app, action);
  cli::AddImport(app, action);
  cli::AddSchema(app, action);
  cli::AddDevices(app, action);
  cli::AddDoctor(app, action);
  cli::AddOperator(app, action);
  cli::AddAgent(app, action);
  cli::AddInject(app, action);
  cli::AddStatus(app, action);
  cli::AddLogs(app, action);
  cli::AddTop(app, action);
  cli::AddRuns(app, action);
  cli::AddCompletion(app, action);
  cli::AddManual(app, action);
  cli::AddVersion(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? contract::kExitDone : contract::kExitUsage;
  }
  return action();
}
