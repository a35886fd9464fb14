#include "tests/support/cuda_on_host/devices.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "tests/support/cuda_on_host/runtime.h"
#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

int64_t NumberFrom(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<Device> AllDevices() {
  const char* listed = std::getenv("CUDA_ON_HOST_UUIDS");
  const std::vector<std::string> uuids = Split(listed == nullptr ? "" : listed);
  const auto count =
      NumberFrom("CUDA_ON_HOST_DEVICES", uuids.empty() ? 1 : static_cast<int64_t>(uuids.size()));
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    char made_up[64];
    std::snprintf(made_up, sizeof made_up, "GPU-%08x-0000-4000-8000-000000000000", i + 1);
    devices.push_back(
        {.uuid = static_cast<size_t>(i) < uuids.size() ? uuids[static_cast<size_t>(i)] : made_up,
         .physical = i,
         .memory = static_cast<size_t>(NumberFrom("CUDA_ON_HOST_MEMORY", int64_t{2} << 30)),
         .capability = static_cast<int>(NumberFrom("CUDA_ON_HOST_CAPABILITY", 90))});
  }
  return devices;
}

std::vector<Device> VisibleDevices() {
  const std::vector<Device> all = AllDevices();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return all;
  std::vector<Device> devices;
  for (const std::string& entry : Split(visible)) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Device& device) {
      return entry == std::to_string(device.physical) || (entry.size() > 4 && device.uuid.starts_with(entry));
    });
    if (found == all.end()) break;
    devices.push_back(*found);
  }
  return devices;
}

std::atomic<int> failed{cudaSuccess};
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

cudaUUID_t UuidBytes(const std::string& uuid) {
  cudaUUID_t bytes{};
  size_t digits = 0;
  for (const char c : uuid.substr(4)) {
    if (c == '-' || digits == 32) continue;
    const char digit[2] = {c, '\0'};
    const auto value = static_cast<unsigned char>(std::strtoul(digit, nullptr, 16));
    auto& byte = reinterpret_cast<unsigned char&>(bytes.bytes[digits / 2]);
    byte = static_cast<unsigned char>(byte << 4 | value);
    ++digits;
  }
  return bytes;
}

}  // namespace

bool PeersReach(int physical, int other) {
  return physical == other || NumberFrom("CUDA_ON_HOST_PEER_ACCESS", 1) != 0;
}

const std::vector<Device>& Devices() {
  static const auto* devices = new std::vector<Device>(VisibleDevices());
  return *devices;
}

cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t Usable() {
  if (Devices().empty()) return cudaErrorNoDevice;
  return static_cast<cudaError_t>(failed.load());
}

void Fault(cudaError_t error, const std::string& why) {
  std::fprintf(stderr, "%s: %s: %s\n", kName, cudaGetErrorName(error), why.c_str());
  int none = cudaSuccess;
  failed.compare_exchange_strong(none, error);
}

int CurrentDevice() { return current_device; }

}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(Devices().size());
  return Return(Devices().empty() ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (device < 0 || static_cast<size_t>(device) >= Devices().size()) return Return(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = Usable()) return Return(error);
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  return Return(WaitForDevice(current_device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (Devices().empty()) return Return(cudaErrorNoDevice);
  if (device < 0 || static_cast<size_t>(device) >= Devices().size()) return Return(cudaErrorInvalidDevice);
  const Device& of = Devices()[static_cast<size_t>(device)];
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "CUDA on host");
  properties->uuid = UuidBytes(of.uuid);
  properties->totalGlobalMem = of.memory;
  properties->sharedMemPerBlock = size_t{48} << 10;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = of.capability / 10;
  properties->minor = of.capability % 10;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = 1 << 20;
  properties->canMapHostMemory = 1;
  properties->unifiedAddressing = 1;
  properties->streamPrioritiesSupported = 1;
  properties->memoryPoolsSupported = 1;
  properties->ipcEventSupported = 1;
  properties->pciBusID = of.physical + 1;
  properties->asyncEngineCount = 2;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported:
      *value = properties.memoryPoolsSupported;
      return cudaSuccess;
    case cudaDevAttrIpcEventSupport:
      *value = properties.ipcEventSupported;
      return cudaSuccess;
    default:
      return Return(cudaErrorInvalidValue);
  }
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (Devices().empty()) return Return(cudaErrorNoDevice);
  if (device < 0 || static_cast<size_t>(device) >= Devices().size()) return Return(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0",
                Devices()[static_cast<size_t>(device)].physical + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = Usable()) return Return(error);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (Devices().empty()) return Return(cudaErrorNoDevice);
  const auto there = [](int d) { return d >= 0 && static_cast<size_t>(d) < Devices().size(); };
  if (!there(device) || !there(peer)) return Return(cudaErrorInvalidDevice);
  const auto physical = [](int d) { return Devices()[static_cast<size_t>(d)].physical; };
  *can = device != peer && PeersReach(physical(device), physical(peer)) ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  int can = 0;
  if (const cudaError_t error = cudaDeviceCanAccessPeer(&can, current_device, peer)) return error;
  if (can == 0) return Return(cudaErrorInvalidDevice);
  static std::mutex mutex;
  static auto* enabled = new std::vector<std::pair<int, int>>;
  const std::scoped_lock lock(mutex);
  const std::pair<int, int> pair{current_device, peer};
  if (std::find(enabled->begin(), enabled->end(), pair) != enabled->end()) {
    return Return(cudaErrorPeerAccessAlreadyEnabled);
  }
  enabled->push_back(pair);
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  const auto sticky = static_cast<cudaError_t>(failed.load());
  return sticky != cudaSuccess ? sticky : error;
}

cudaError_t cudaPeekAtLastError() {
  const auto sticky = static_cast<cudaError_t>(failed.load());
  return sticky != cudaSuccess ? sticky : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define LOCKSTEP_NAME(name) \
  case name:                \
    return #name;
    LOCKSTEP_NAME(cudaSuccess)
    LOCKSTEP_NAME(cudaErrorInvalidValue)
    LOCKSTEP_NAME(cudaErrorMemoryAllocation)
    LOCKSTEP_NAME(cudaErrorInvalidConfiguration)
    LOCKSTEP_NAME(cudaErrorInvalidMemcpyDirection)
    LOCKSTEP_NAME(cudaErrorInvalidDevice)
    LOCKSTEP_NAME(cudaErrorNoDevice)
    LOCKSTEP_NAME(cudaErrorInvalidResourceHandle)
    LOCKSTEP_NAME(cudaErrorNotReady)
    LOCKSTEP_NAME(cudaErrorNotSupported)
    LOCKSTEP_NAME(cudaErrorIllegalAddress)
    LOCKSTEP_NAME(cudaErrorMisalignedAddress)
    LOCKSTEP_NAME(cudaErrorLaunchFailure)
    LOCKSTEP_NAME(cudaErrorMapBufferObjectFailed)
    LOCKSTEP_NAME(cudaErrorDeviceUninitialized)
    LOCKSTEP_NAME(cudaErrorPeerAccessAlreadyEnabled)
    LOCKSTEP_NAME(cudaErrorHostMemoryAlreadyRegistered)
    LOCKSTEP_NAME(cudaErrorHostMemoryNotRegistered)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnsupported)
    LOCKSTEP_NAME(cudaErrorStreamCaptureInvalidated)
    LOCKSTEP_NAME(cudaErrorStreamCaptureMerge)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnmatched)
    LOCKSTEP_NAME(cudaErrorStreamCaptureUnjoined)
    LOCKSTEP_NAME(cudaErrorStreamCaptureIsolation)
    LOCKSTEP_NAME(cudaErrorStreamCaptureWrongThread)
    LOCKSTEP_NAME(cudaErrorCapturedEvent)
#undef LOCKSTEP_NAME
    default:
      return "cudaErrorUnknown";
  }
}

const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
