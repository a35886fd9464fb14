#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/exec_child.h"

namespace lockstep::process {

// The PATH in which the launch's program is searched: its environment's, else the usual folders.
std::string SearchPath(const Launch& launch);

// Why the child of ChildProcess::Spawn could not run its program, in words that name the file. `request` is
// what the child left behind, `candidates` are the paths that it tried.
Status ExecFailure(const Launch& launch, const ExecRequest& request,
                   const std::vector<std::string>& candidates);

}  // namespace lockstep::process
