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
inline constexpr char kGroupRank[] = "GROUP_RANK";             // this replica among those that take part
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
// One run of the job: the same in all its generations; 32 hexadecimal digits. It is the id of the job's
// store.
inline constexpr char kRun[] = "LOCKSTEP_RUN";
// What a process is in its job: its role ("worker" …), which of the role's processes it is and how many there
// are, and the processes of all roles in the manifest's order, "worker=4,ps=2,evaluator=1". RANK and
// WORLD_SIZE count over all roles in the same order.
inline constexpr char kRole[] = "LOCKSTEP_ROLE";
inline constexpr char kRoleRank[] = "LOCKSTEP_ROLE_RANK";
inline constexpr char kRoleSize[] = "LOCKSTEP_ROLE_SIZE";
inline constexpr char kRoles[] = "LOCKSTEP_ROLES";
// 0, 1 …: how often this process alone was started again within the generation.
inline constexpr char kIncarnation[] = "LOCKSTEP_INCARNATION";
inline constexpr char kStoreAddress[] = "LOCKSTEP_STORE_ADDRESS";  // HOST:PORT, [V6]:PORT
inline constexpr char kTokenFile[] = "LOCKSTEP_TOKEN_FILE";        // path, mode 0600
inline constexpr char kEventsFd[] = "LOCKSTEP_EVENTS_FD";          // number of the inherited pipe
inline constexpr char kControlFd[] = "LOCKSTEP_CONTROL_FD";        // likewise, of control_line.h
inline constexpr char kCheckpointDirectory[] = "LOCKSTEP_CHECKPOINT_DIRECTORY";  // absent: no checkpoints
inline constexpr char kTrainerConfig[] = "LOCKSTEP_TRAINER_CONFIG";  // path of the resolved manifest, JSON
// Where a trainer process is to leave its part of a trace (docs/contract.md), and of how many steps; absent:
// nobody asked for one.
inline constexpr char kTraceFile[] = "LOCKSTEP_TRACE_FILE";
inline constexpr char kTraceSteps[] = "LOCKSTEP_TRACE_STEPS";
inline constexpr char kInterface[] = "LOCKSTEP_INTERFACE";  // spec.network.interface, when given

// The process's device and how much of it the process may take (spec.devices.memory, spec.devices.virtual).
inline constexpr char kDevice[] = "LOCKSTEP_DEVICE";  // "GPU" | "CPU" | "TPU"
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

// What lockstep-pmix serves (launcher/pmix/job_map.h); no rank has it.
inline constexpr char kPmixJob[] = "LOCKSTEP_PMIX_JOB";

// Read by the launcher from its own environment, and not passed on.
inline constexpr char kPodUid[] = "LOCKSTEP_POD_UID";              // of the pod that an agent runs in
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
