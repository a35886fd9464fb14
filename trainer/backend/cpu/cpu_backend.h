#pragma once

#include <memory>

#include "trainer/backend/backend.h"

// backend/cpu does the arithmetic on the processor: matrix products by oneDNN, everything element-wise by
// loops of our own, compiled for several instruction sets and chosen when the program starts. Its oneDNN
// headers stay in this folder.
namespace lockstep::trainer::cpu {

// `threads` as BackendOptions says. Its work is done when a call returns.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace lockstep::trainer::cpu
