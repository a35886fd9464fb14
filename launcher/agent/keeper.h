#pragma once

#include <functional>

namespace lockstep::agent {

// The first process of a pod: an init of few lines that has nothing to crash with. Runs `agent_main` in a
// child (process::RunGuarded: signals are passed on, orphans are reaped, nothing outlives the agent), and
// again, after 0.2 s, then 0.4, 0.8 … 5 s, when it was killed or ended with a code that `restarts_after`
// holds for. Returns the last code: when it need not run again, when the pod was asked to stop meanwhile (128
// + the signal), or when it has come back kMaxRestarts times without once lasting kLasts: then the pod is
// lost.
int Keep(const std::function<int()>& agent_main, const std::function<bool(int)>& restarts_after);

inline constexpr int kMaxRestarts = 10;
inline constexpr int kLastsSeconds = 60;

}  // namespace lockstep::agent
