#pragma once

#include <string>
#include <vector>

#include "launcher/process/exit_report.h"

namespace lockstep::process {

// The one short report on a failed generation, several lines with a newline each:
//
//   rank 2 (worker, pid 4711) failed first, after 12.3 s: killed by signal 11 (…), core dumped
//     the other 3 ranks: 2 stopped by the launcher, 1 exit code 11
//     its core dump: /src/core.4711
//     where it stood:
//       | …
//     all stacks of it: runs/mnist/stack-rank-2.txt
//     its last lines:
//       | …
//     its whole output: runs/mnist/rank-2.log
//
// `reports` are in the order of exits. Empty when none of them is a failure. Control characters in the ranks'
// lines come out as '?', so that the report can't be forged or disturb a terminal.
std::string FailureReport(const std::vector<ExitReport>& reports);

}  // namespace lockstep::process
