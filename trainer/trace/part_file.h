#pragma once

#include <chrono>
#include <span>
#include <string>

#include "common/status.h"
#include "trainer/trace/recorder.h"

namespace lockstep::trainer::trace {

// Whose spans they are.
struct Owner {
  int rank = 0;  // among all of the job
  std::string role = "worker";
  int role_rank = 0;
  std::string device = "CPU:0";
  // What is added to this machine's clock to have that of rank 0's machine (shared_clock.h).
  std::chrono::nanoseconds clock_offset{0};
};

// One rank's part of a trace as the launcher wants it (docs/contract.md): an event of Chrome's trace format a
// line ("Trace Event Format", the JSON array's elements), first those that name the rank and its lines. The
// process of an event is its rank + 1, for 0 means idle to some readers; times are microseconds of the clock.
std::string PartOf(const Owner& owner, std::span<const Span> spans);

// The same into a file, whole or not at all.
Status WritePart(const std::string& path, const Owner& owner, const Recorder& recorder);

}  // namespace lockstep::trainer::trace
