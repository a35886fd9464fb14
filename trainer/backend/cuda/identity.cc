#include "trainer/backend/cuda/identity.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "common/lower_case.h"
#include "trainer/backend/cuda/check.h"
#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

std::string Hexadecimal(const cudaUUID_t& uuid) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

// CUDA gives the number of a MIG slice without saying that it is one; CUDA_VISIBLE_DEVICES, by which alone a
// slice can be had, does.
std::string WithKind(const std::string& number) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream entries(visible == nullptr ? "" : visible);
  for (std::string listed; std::getline(entries, listed, ',');) {
    const std::string entry = LowerCase(listed);
    if (entry.starts_with("mig-") && number.starts_with(entry.substr(4))) return "MIG-" + number;
  }
  return "GPU-" + number;
}

}  // namespace

DeviceIdentity IdentityOf(int ordinal) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice) {
    cudaGetLastError();  // it is told below
    throw Unsupported("device GPU " + std::to_string(ordinal) + " is not there; there are none");
  }
  CheckCuda(counted, "cudaGetDeviceCount", __FILE__, __LINE__);
  if (ordinal < 0 || ordinal >= count) {
    std::string there;
    for (int i = 0; i < count; ++i) there += (i == 0 ? "" : ", ") + NameOf(IdentityOf(i));
    throw Unsupported("device GPU " + std::to_string(ordinal) + " is not there; there are " + there);
  }
  cudaDeviceProp properties;
  LOCKSTEP_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  return {.name = properties.name,
          .uuid = WithKind(Hexadecimal(properties.uuid)),
          .ordinal = ordinal,
          .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
          .capability = properties.major * 10 + properties.minor};
}

std::string NameOf(const DeviceIdentity& identity) {
  return "GPU " + std::to_string(identity.ordinal) + " (" + identity.name + ")";
}

}  // namespace lockstep::trainer::cuda
