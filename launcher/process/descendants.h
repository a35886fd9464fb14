#pragma once

#include <sys/types.h>

#include <chrono>
#include <vector>

// Ending everything below this process. Complete only in a child subreaper (BecomeSubreaper): there an orphan
// of any depth becomes our child, so "no children" means "no descendants".
namespace lockstep::process {

// Makes this process the one that orphaned descendants fall to.
void BecomeSubreaper();

// All living descendants of `ancestor`, in no order; zombies are left out. One walk over /proc: what is
// forked during the walk may be missing.
std::vector<pid_t> Descendants(pid_t ancestor);

// One pass: reaps every ended child, sends SIGKILL to every descendant of this process. True when no child is
// left. Reaps whatever child it finds, so every ChildProcess must have ended and been waited for before.
bool SweepDescendantsOnce();

// What is left of a program after SIGKILL has this long to be gone.
inline constexpr std::chrono::seconds kSweepLimit{5};

// Passes until nothing is left or `limit` is over; blocks. False when something is left: a process in
// uninterruptible sleep, or one of another user.
bool SweepDescendants(std::chrono::milliseconds limit);

}  // namespace lockstep::process
