#include "trainer/backend/cuda/cudnn_library.h"

#include <dlfcn.h>

namespace lockstep::trainer::cuda {

std::optional<Cudnn> OpenCudnn(std::string* why) {
  constexpr char kFile[] = "libcudnn.so.9";
  constexpr char kRemedy[] = "; it is in NVIDIA's package nvidia-cudnn-cu13";
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *why = std::string("convolutions need cuDNN 9, which cannot be opened: ") + dlerror() + kRemedy;
    return std::nullopt;
  }
  Cudnn cudnn;
  const char* missing = nullptr;
#define LOCKSTEP_FIND(name)                                                   \
  cudnn.name = reinterpret_cast<decltype(cudnn.name)>(dlsym(library, #name)); \
  if (cudnn.name == nullptr) missing = #name;
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  if (missing != nullptr) {
    *why = std::string("convolutions need cuDNN 9, and this ") + kFile + " has no " + missing + kRemedy;
    return std::nullopt;
  }
  return cudnn;
}

}  // namespace lockstep::trainer::cuda
