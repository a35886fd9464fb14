#pragma once

#include <stdexcept>

namespace lockstep::trainer::cuda {

// Thrown while work is recorded into a graph by what cannot be part of one. Never leaves the backend: the
// caller then enqueues its work directly.
struct NotRecordable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep::trainer::cuda
