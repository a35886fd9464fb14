#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/log.h"

namespace CLI {
class App;
}

// cli/: the command line, one file a subcommand. Each adds itself to the app and says what is to run when it
// was chosen; the work is done in the folders below.
namespace lockstep::cli {

// What main() is to do once the arguments are read; returns the exit code.
using Action = std::function<int()>;

void AddAgent(CLI::App& app, Action& action);
void AddInject(CLI::App& app, Action& action);
void AddOperator(CLI::App& app, Action& action);
void AddRun(CLI::App& app, Action& action);
void AddValidate(CLI::App& app, Action& action);
void AddImport(CLI::App& app, Action& action);
void AddSchema(CLI::App& app, Action& action);
void AddDevices(CLI::App& app, Action& action);
void AddDoctor(CLI::App& app, Action& action);
void AddInit(CLI::App& app, Action& action);
void AddStatus(CLI::App& app, Action& action);
void AddLogs(CLI::App& app, Action& action);
void AddTop(CLI::App& app, Action& action);
void AddRuns(CLI::App& app, Action& action);
void AddCompletion(CLI::App& app, Action& action);
void AddManual(CLI::App& app, Action& action);
void AddVersion(CLI::App& app, Action& action);

// Of a command that is not about a job of its own, as kubectl's.
inline constexpr int kExitFailed = 1;

// Says why a command cannot be done. Returns `exit_code`, to be returned.
inline int Complain(std::string_view why, int exit_code) {
  log::Error(why);
  return exit_code;
}

// `--log-format text|json` of a command that runs for long (common/log.h).
void AddLogFormat(CLI::App& command);

}  // namespace lockstep::cli
