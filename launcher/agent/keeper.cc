#include "launcher/agent/keeper.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "common/log.h"
#include "launcher/process/guard.h"

namespace lockstep::agent {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{5'000};

void Say(const std::string& line) { log::WriteLine(log::Level::kWarning, "lockstep", line); }

// The signal that asked to stop meanwhile, or 0.
int Pause(milliseconds pause, const sigset_t& stops) {
  const timespec limit = {.tv_sec = pause.count() / 1000, .tv_nsec = pause.count() % 1000 * 1'000'000};
  const int signal = ::sigtimedwait(&stops, nullptr, &limit);
  return std::max(signal, 0);
}

}  // namespace

int Keep(const std::function<int()>& agent_main, const std::function<bool(int)>& restarts_after) {
  // Blocked here from the beginning: between two agents too a signal must not be lost. The agents have the
  // mask that this process was started with.
  sigset_t stops, original;
  sigemptyset(&stops);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&stops, signal);
  ::pthread_sigmask(SIG_BLOCK, &stops, &original);
  const auto run = [&] {
    ::pthread_sigmask(SIG_SETMASK, &original, nullptr);
    return agent_main();
  };

  int restarts = 0;
  milliseconds pause = kFirstPause;
  while (true) {
    const auto started = Clock::now();
    const int code = process::RunGuarded(run);
    if (!restarts_after(code)) return code;
    if (Clock::now() - started >= std::chrono::seconds(kLastsSeconds)) {
      restarts = 0;
      pause = kFirstPause;
    }
    if (restarts == kMaxRestarts) {
      Say("the agent ended with exit code " + std::to_string(code) + " once more; the pod gives up");
      return code;
    }
    restarts += 1;
    Say("the agent ended with exit code " + std::to_string(code) + "; it is started again (" +
        std::to_string(restarts) + " of " + std::to_string(kMaxRestarts) + ")");
    if (const int signal = Pause(pause, stops); signal != 0) return 128 + signal;
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace lockstep::agent
