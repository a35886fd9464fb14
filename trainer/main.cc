#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "common/contract/environment.h"
#include "common/log.h"
#include "trainer/device_map.h"
#include "trainer/error.h"
#include "trainer/event_writer.h"
#include "trainer/matmul_demo.h"
#include "trainer/run.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  using Command = int (*)(const std::vector<std::string>&);
  const std::map<std::string, Command> commands = {{"device-map", trainer::DeviceMap},
                                                   {"matmul-demo", trainer::MatmulDemo}};
  const auto command = arguments.empty() ? commands.end() : commands.find(arguments.front());
  if (!arguments.empty() && command == commands.end()) {
    const bool help = arguments.front() == "--help";
    std::fputs(
        "usage: lockstep-trainer\n"
        "Started by \"lockstep run\" for a manifest with spec.trainer.\n"
        "       lockstep-trainer device-map PROCESSES\n"
        "Started by \"lockstep run --dry-run\" for a pipeline.\n"
        "       lockstep-trainer matmul-demo --help\n",
        help ? stdout : stderr);
    return help ? contract::kExitDone : contract::kExitUsage;
  }
  const char* rank = std::getenv(contract::kRank);
  log::Initialize(log::Level::kInfo, command != commands.end()
                                         ? command->first
                                         : std::string("trainer ") + (rank == nullptr ? "?" : rank));

  trainer::EventWriter events;
  try {
    if (command == commands.end()) return trainer::Run(events);
    return command->second({arguments.begin() + 1, arguments.end()});
  } catch (const trainer::Error& error) {
    log::Error(error.what());
    events.Write(contract::ErrorEvent{.kind = error.kind(), .message = error.what()});
    return error.exit_code();
  } catch (const std::exception& error) {
    log::Error(std::string("unexpected: ") + error.what());
    events.Write(contract::ErrorEvent{.kind = "Unexpected", .message = error.what()});
    return contract::kExitRetryable;
  }
}
