#pragma once

#include <array>
#include <string_view>

// The names of what the launcher puts into a process's environment (docs/contract.md).
namespace lockstep::contract {

// What every launcher sets, under the names that frameworks know.
inline constexpr char kRank[] = "RANK";
inline constexpr char kWorldSize[] = "WORLD_SIZE";
inline constexpr char kLocalRank[] = "LOCAL_RANK";
inline constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";
inline constexpr char kGroupRank[] = "GROUP_RANK";             // the replica's index
inline constexpr char kGroupWorldSize[] = "GROUP_WORLD_SIZE";  // how many replicas
inline constexpr char kMasterAddress[] = "MASTER_ADDR";
inline constexpr char kMasterPort[] = "MASTER_PORT";
inline constexpr char kOmpThreads[] = "OMP_NUM_THREADS";
inline constexpr char kCudaDeviceOrder[] = "CUDA_DEVICE_ORDER";
inline constexpr char kCudaVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

// Lockstep's own.
inline constexpr char kJob[] = "LOCKSTEP_JOB";                // metadata.name
inline constexpr char kAttempt[] = "LOCKSTEP_ATTEMPT";        // 0, 1 …: a cluster's new Job
inline constexpr char kGeneration[] = "LOCKSTEP_GENERATION";  // 0, 1 …: a restart in place
inline constexpr char kRun[] = "LOCKSTEP_RUN";  // one run of the job: the same in all its generations, random
inline constexpr char kRole[] = "LOCKSTEP_ROLE";                   // "worker" …
inline constexpr char kStoreAddress[] = "LOCKSTEP_STORE_ADDRESS";  // HOST:PORT, [V6]:PORT
inline constexpr char kTokenFile[] = "LOCKSTEP_TOKEN_FILE";        // path, mode 0600
inline constexpr char kEventsFd[] = "LOCKSTEP_EVENTS_FD";          // number of the inherited pipe
inline constexpr char kCheckpointDirectory[] = "LOCKSTEP_CHECKPOINT_DIRECTORY";  // absent: no checkpoints
inline constexpr char kTrainerConfig[] = "LOCKSTEP_TRAINER_CONFIG";  // path of the resolved manifest, JSON
inline constexpr char kInterface[] = "LOCKSTEP_INTERFACE";           // spec.network.interface, when given

// The process's device and how much of it the process may take (spec.devices.memory, spec.devices.virtual).
inline constexpr char kDevice[] = "LOCKSTEP_DEVICE";  // "GPU" | "CPU"
// Its own device: the UUID of a GPU or of a MIG slice, "GPU:0" where it has none; several with commas
// between. Absent on the CPU.
inline constexpr char kDeviceUuid[] = "LOCKSTEP_DEVICE_UUID";
inline constexpr char kSharedDevice[] =
    "LOCKSTEP_SHARED_DEVICE";  // "1": other ranks are on the same physical GPU
// "Growth" | "Preallocate" | "Limit" | "Fraction". Preallocate together with a limit: that much at once.
inline constexpr char kMemoryPolicy[] = "LOCKSTEP_MEMORY_POLICY";
inline constexpr char kMemoryLimit[] = "LOCKSTEP_MEMORY_LIMIT";  // bytes on each device; absent: no limit
inline constexpr char kMemoryFraction[] =
    "LOCKSTEP_MEMORY_FRACTION";  // (0, 1]; with the policy Fraction only
inline constexpr char kCudaPlugin[] =
    "LOCKSTEP_CUDA_PLUGIN";  // path of liblockstep-cuda.so; GPU processes only

// Read by the launcher from its own environment, and not passed on.
inline constexpr char kNvmlLibrary[] = "LOCKSTEP_NVML_LIBRARY";    // instead of libnvidia-ml.so.1
inline constexpr char kDeviceLedger[] = "LOCKSTEP_DEVICE_LEDGER";  // folder of the machine's device ledger

// What the launcher decides for every process, so that no manifest may set it; all of LOCKSTEP_* besides.
inline constexpr std::array<std::string_view, 10> kReserved = {
    kRank,           kWorldSize,     kLocalRank,  kLocalWorldSize,  kGroupRank,
    kGroupWorldSize, kMasterAddress, kMasterPort, kCudaDeviceOrder, kCudaVisibleDevices};
inline constexpr std::string_view kOwnPrefix = "LOCKSTEP_";
inline constexpr bool IsReserved(std::string_view name) {
  for (const std::string_view reserved : kReserved) {
    if (name == reserved) return true;
  }
  return name.starts_with(kOwnPrefix);
}

}  // namespace lockstep::contract
