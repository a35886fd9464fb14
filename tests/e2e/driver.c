/* A libnvidia-ml.so.1 that says who it is when it is asked for GPUs. */
int nvmlInit_v2(void) { return 9; }
const char *nvmlErrorString(int code) { return code == 9 ? "the driver of the test" : "?"; }
#define NEVER(name) \
  int name(void) { return 1; }
NEVER(nvmlShutdown)
NEVER(nvmlSystemGetDriverVersion)
NEVER(nvmlDeviceGetCount_v2)
NEVER(nvmlDeviceGetHandleByIndex_v2)
NEVER(nvmlDeviceGetUUID)
NEVER(nvmlDeviceGetName)
NEVER(nvmlDeviceGetMemoryInfo)
NEVER(nvmlDeviceGetPciInfo_v3)
