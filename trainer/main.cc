#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "common/contract/environment.h"
#include "common/log.h"
#include "trainer/error.h"
#include "trainer/event_writer.h"
#include "trainer/matmul_demo.h"
#include "trainer/run.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool demo = !arguments.empty() && arguments.front() == "matmul-demo";
  if (!arguments.empty() && !demo) {
    const bool help = arguments.front() == "--help";
    std::fputs(
        "usage: lockstep-trainer\n"
        "Started by \"lockstep run\" for a manifest with spec.trainer.\n"
        "       lockstep-trainer matmul-demo --help\n",
        help ? stdout : stderr);
    return help ? contract::kExitDone : contract::kExitUsage;
  }
  const char* rank = std::getenv(contract::kRank);
  log::Initialize(log::Level::kInfo,
                  demo ? "matmul-demo" : std::string("trainer ") + (rank == nullptr ? "?" : rank));

  trainer::EventWriter events;
  try {
    return demo ? trainer::MatmulDemo({arguments.begin() + 1, arguments.end()}) : trainer::Run(events);
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
