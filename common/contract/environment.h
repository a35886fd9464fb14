#pragma once

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

}  // namespace lockstep::contract
