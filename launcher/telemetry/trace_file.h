#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

// A trace of a run's last steps: what the trainer's ranks have left of them (docs/contract.md), one file each
// in a folder, put together into one that Perfetto and chrome://tracing read ("Trace Event Format", the JSON
// object format). Each rank is a process of it, and each thing that it does side by side with others a
// thread.
namespace lockstep::telemetry {

struct TraceInfo {
  std::string job;
  std::string run;    // the run's folder
  int64_t steps = 0;  // that were asked for
};

// Makes the folder, and removes what is in it of ranks.
Status ClearTraceParts(const std::string& folder);

// Writes `file`, whole or not at all, from what is in `folder`, which it then removes; returns of how many
// ranks. 0: there were none, and no file was written. The size of the parts is not limited here: they are
// copied, line by line, as they are.
Result<int> MergeTrace(const std::string& folder, const std::string& file, const TraceInfo& info);

}  // namespace lockstep::telemetry
