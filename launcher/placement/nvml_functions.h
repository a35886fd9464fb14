#pragma once

#include <dlfcn.h>

#include "launcher/placement/nvml_library.h"

// NVML's ABI as its reference documents it (docs.nvidia.com/deploy/nvml-api). These layouts are frozen: NVML
// adds a versioned function (`_v3`) whenever one changes. Private to nvml_library.cc and nvml_health.cc.
namespace lockstep::placement {

inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlNotSupported = 3;
inline constexpr int kNvmlNoPermission = 4;
inline constexpr int kNvmlTimeout = 10;
inline constexpr int kNvmlGpuIsLost = 15;
inline constexpr int kNvmlResetRequired = 16;

struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
static_assert(sizeof(NvmlMemory) == 24);

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(NvmlPciInfo) == 68);

struct NvmlUtilization {
  unsigned gpu;  // percent
  unsigned memory;
};
static_assert(sizeof(NvmlUtilization) == 8);

struct NvmlEventData {
  void* device;
  unsigned long long type;
  unsigned long long data;  // of an Xid error: its number
  unsigned gpu_instance;
  unsigned compute_instance;
};
static_assert(sizeof(NvmlEventData) == 32);

struct NvmlLibrary::Functions {
  using Device = NvmlLibrary::Device;
  using EventSet = void*;

  void* library = nullptr;
  bool initialized = false;
  EventSet events = nullptr;  // of WatchXids
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, NvmlMemory*) = nullptr;
  int (*pci)(Device, NvmlPciInfo*) = nullptr;
  // Absent from drivers before 450.
  int (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  int (*max_mig)(Device, unsigned*) = nullptr;
  int (*mig_by_index)(Device, unsigned, Device*) = nullptr;
  // Of what a GPU can do; any may be absent.
  int (*cuda_cores)(Device, unsigned*) = nullptr;
  int (*max_clock)(Device, int clock, unsigned*) = nullptr;  // MHz
  int (*compute_capability)(Device, int* major, int* minor) = nullptr;
  // Of a GPU's health; any may be absent.
  int (*utilization)(Device, NvmlUtilization*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // milliwatts
  int (*temperature)(Device, int sensor, unsigned*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  int (*ecc_errors)(Device, int type, int counter, unsigned long long*) = nullptr;
  int (*event_set_create)(EventSet*) = nullptr;
  int (*register_events)(Device, unsigned long long types, EventSet) = nullptr;
  int (*event_set_wait)(EventSet, NvmlEventData*, unsigned milliseconds) = nullptr;
  int (*event_set_free)(EventSet) = nullptr;

  ~Functions() {
    if (events != nullptr) event_set_free(events);
    if (initialized) shutdown();
    if (library != nullptr) dlclose(library);
  }

  // Whether all that cannot be done without is there.
  bool LoadAll();
};

}  // namespace lockstep::placement
