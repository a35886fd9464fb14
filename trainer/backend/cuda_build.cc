#include "trainer/backend/cuda_plugin.h"

namespace lockstep::trainer {

const char* const kCudaBuild = LOCKSTEP_VERSION;

}  // namespace lockstep::trainer
