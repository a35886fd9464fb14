#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "common/status.h"
#include "launcher/plugin/status_view.h"

namespace lockstep::top {

struct Source {
  std::string name;  // as it is shown: a URL, a job of a cluster
  // Asks once, in bounded time. On a thread of its own.
  std::function<Result<plugin::JobView>()> ask;
  std::chrono::milliseconds interval{500};  // from answer to question
};

// Shows the job on the terminal until the user has seen enough. Errors of `ask` are shown, not returned;
// kFailedPrecondition: the terminal is none that can be drawn on.
Status Show(const Source& source);

}  // namespace lockstep::top
