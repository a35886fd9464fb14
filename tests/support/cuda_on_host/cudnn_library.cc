#include "trainer/backend/cuda/cudnn_library.h"

#include <cstdlib>
#include <string_view>

// In the place of the file of that name in trainer/backend/cuda: the functions are cudnn.cc's.
// CUDA_ON_HOST_CUDNN=missing: as if cuDNN were not there.
namespace lockstep::trainer::cuda {

std::optional<Cudnn> OpenCudnn(std::string* why) {
  const char* const wanted = std::getenv("CUDA_ON_HOST_CUDNN");
  if (wanted != nullptr && std::string_view(wanted) == "missing") {
    *why = "convolutions need cuDNN 9, which CUDA_ON_HOST_CUDNN takes away";
    return std::nullopt;
  }
  Cudnn cudnn;
#define LOCKSTEP_TAKE(name) cudnn.name = &::name;
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_TAKE)
#undef LOCKSTEP_TAKE
  return cudnn;
}

}  // namespace lockstep::trainer::cuda
