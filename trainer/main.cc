#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "common/contract/environment.h"
#include "common/log.h"
#include "trainer/error.h"
#include "trainer/event_writer.h"
#include "trainer/run.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc > 1) {
    const bool help = std::string_view(argv[1]) == "--help";
    std::fputs("usage: lockstep-trainer\nStarted by \"lockstep run\" for a manifest with spec.trainer.\n",
               help ? stdout : stderr);
    return help ? contract::kExitDone : contract::kExitUsage;
  }
  const char* rank = std::getenv(contract::kRank);
  log::Initialize(log::Level::kInfo, std::string("trainer ") + (rank == nullptr ? "?" : rank));

  trainer::EventWriter events;
  try {
    return trainer::Run(events);
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
