#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "launcher/placement/environment_file.h"
#include "launcher/placement/inventory.h"
#include "launcher/spec/training_job.h"

// Who gets which device, and what stands in each process's environment. Pure: no files, no clock, no
// environment but what is passed in; the same input gives the same plan.
//
// Two steps, because the ranks are known only once all machines have met:
//   AssignDevices     before the rendezvous: how many processes run here, on which devices and CPUs
//   MakeEnvironment   at every generation: rank, addresses, and the whole environment of each process
//
// Errors are kInvalidArgument (the manifest and this machine cannot fit), kFailedPrecondition (a device that
// is not here) or kUnimplemented (known, not built yet); each message begins with the field that would have
// to change. What was decided otherwise than the manifest's reader may expect is in `notices`, one sentence
// each.
namespace lockstep::placement {

using Environment = std::map<std::string, std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

struct DeviceRequest {
  std::string role = "worker";
  Inventory inventory = {};      // of this machine
  Environment inherited = {};    // of the launcher
  std::string cuda_plugin = {};  // path of the trainer's liblockstep-cuda.so; empty: not installed
  bool mps_control = false;      // nvidia-cuda-mps-control can be started
  bool tpus = false;             // the role's TPUs are here: the pod was given them
  std::map<int, std::string> left_out = {};  // GPUs by index that failed while the job ran, and why
};

// How much of a device's memory a process may take.
struct MemoryShare {
  spec::MemoryPolicy policy = spec::MemoryPolicy::kGrowth;
  std::optional<int64_t> limit;    // bytes on each of its devices
  std::optional<double> fraction;  // of each of its devices; set whenever it is known, for kLimit too
  bool mps = false;                // enforced by CUDA_MPS_PINNED_DEVICE_MEM_LIMIT
};

// What one process gets of its machine.
struct ProcessDevices {
  int local_rank = 0;
  spec::DeviceType type = spec::DeviceType::kCpu;  // kCpu, kGpu or kTpu
  // Its own: "CPU:0", "TPU:0", or GPU and MIG UUIDs ("GPU:0" where the UUID is not known).
  std::vector<std::string> devices = {};
  std::vector<std::string> visible = {};  // for CUDA_VISIBLE_DEVICES; more than `devices` with PerReplica
  bool shared = false;                    // another process of this assignment is on the same physical GPU
  std::vector<int> cpus = {};             // logical ids to bind it to; empty: not bound
  int numa_node = -1;                     // where all of `cpus` are; -1: several or not bound
  int threads = 1;                        // for arithmetic
  MemoryShare memory = {};
};

struct DeviceAssignment {
  std::string role = {};
  std::vector<ProcessDevices> processes = {};  // by local rank
  spec::Visibility visibility = spec::Visibility::kPerProcess;
  spec::DeviceType type = spec::DeviceType::kCpu;
  int physical_devices = 0;  // GPUs or MIG slices that could be used, whether chosen or not; 1 for the CPU
  int logical_devices = 0;   // after `devices.virtual`; for the CPU the processes' shares
  // What sums the gradients where it is not what the manifest says (NCCL without GPUs, with softPlacement).
  std::optional<spec::CrossDeviceOps> cross_device_ops;
  bool shared_gpus = false;  // several processes on one physical GPU
  std::vector<std::string> notices = {};
};

// The manifest as this machine carries it out: what `assignment` decided otherwise is changed in it.
spec::TrainingJob Resolved(const spec::TrainingJob& job, const DeviceAssignment& assignment);

// Whether the role, or where it is empty any, could use a GPU: false means that Discover need not ask for
// them.
bool NeedsGpus(const spec::TrainingJob& job, const std::string& role);

// The processes of one replica of `request.role` on this machine.
Result<DeviceAssignment> AssignDevices(const spec::TrainingJob& job, const DeviceRequest& request);

// All roles with all their replicas on this machine, in the manifest's order; local ranks count over them.
// With several roles nobody is bound to CPUs, and the cores are counted evenly. `request.role` is not looked
// at.
Result<std::vector<DeviceAssignment>> AssignRoles(const spec::TrainingJob& job, const DeviceRequest& request);

// The processes of all of them in one, by local rank, for whoever looks at this machine's devices alone.
DeviceAssignment Gathered(const std::vector<DeviceAssignment>& assignments);

// One launcher of a generation and the processes it runs; of a job that one machine runs, one role.
struct ReplicaFacts {
  std::string role = "worker";
  int index = 0;  // within the role
  int processes = 1;
  std::string address = {};  // host name or address that the others reach it at
};

// What the rendezvous came to, and where things are on this machine.
struct GenerationFacts {
  int64_t attempt = 0;
  int64_t generation = 0;
  std::string run;  // names this run of the job in all its generations
  std::vector<ReplicaFacts> replicas =
      {};               // in order of rank: the first one's ranks come before the second's
  size_t self = 0;      // which of them this launcher is, or the first where it has several roles
  int incarnation = 0;  // of this launcher's processes
  std::string master_address = {};
  int master_port = 0;
  std::string store_address = {};         // HOST:PORT; empty: no store
  std::string token_file = {};            // a path
  std::string checkpoint_directory = {};  // empty: the trainer's own of the manifest, or none
  std::string trainer_program = {};       // path of lockstep-trainer
  std::string trainer_config = {};        // path of the resolved manifest, JSON
  std::string trace_folder = {};          // where the trainer's ranks leave their parts; empty: no trace
  int64_t trace_steps = 0;                // then: of how many steps
  int events_fd = 3;                      // its number in the process (process::ChildProcess); -1: none
  std::string cuda_plugin = {};           // path of the trainer's liblockstep-cuda.so; empty: none
  std::string mps_pipe_directory = {};    // of the job's own MPS daemon; empty: none
  std::string mps_log_directory = {};
  std::vector<Variables> mpi = {};  // by which each rank of this launcher finds its PMIx server; empty: none
  std::string mpi_folder = {};      // then: for the memory that its ranks share
  Environment inherited = {};       // of the launcher
  EnvironmentFiles environment_files = {};  // of the roles here
  // per_process_memory_fraction in PYTORCH_ALLOC_CONF is new (late 2025) and refused by older versions, so it
  // is used only where somebody found that the installed one knows it.
  bool pytorch_knows_memory_fraction = false;
};

struct ProcessPlan {
  int rank = 0;
  int local_rank = 0;
  std::string role = {};
  int role_rank = 0;         // among the processes of its role
  bool own_trainer = false;  // it runs the trainer, and no program
  ProcessDevices devices = {};
  std::vector<std::string> command = {};  // argv; argv[0] is searched in PATH when it has no slash
  Variables environment = {};             // the whole of it
  Variables changed = {};  // the part of `environment` that the launcher or the manifest set, in order
  std::vector<std::string> from_manifest = {};         // names in `changed` that spec.program.environment set
  std::map<std::string, std::string> from_files = {};  // and those that a file did, with its name: secrets
  std::string working_directory = {};                  // empty: the launcher's
};

// A program that is run once on this machine before its processes: spec.program.prepare.
struct Preparation {
  std::vector<std::string> command = {};
  Variables environment = {};                       // the whole of it
  Variables from_manifest = {};                     // the part of it that spec.program.environment set
  std::vector<std::string> environment_files = {};  // that set another part of it
  std::string working_directory = {};               // empty: the launcher's
  bool operator==(const Preparation&) const = default;
};

struct Plan {
  std::vector<ProcessPlan> processes = {};  // this machine's, by local rank
  int world_size = 0;
  int rank_offset = 0;                    // rank of the first of them
  std::vector<Preparation> prepare = {};  // as Preparations() has them
  int physical_devices = 0;
  int logical_devices = 0;
  spec::DeviceType type = spec::DeviceType::kCpu;
  std::vector<std::string> notices = {};  // the assignment's and those of the environment
};

// Whether the environment of some rank says that it listens on MASTER_PORT + a rank: TensorFlow, and JAX
// where its role is not the first.
bool ListenOnPortEach(const spec::TrainingJob& job);

// One assignment as AssignDevices made it, or all of AssignRoles; their processes must be as many as `facts`
// says of this launcher.
Result<Plan> MakeEnvironment(const spec::TrainingJob& job, const std::vector<DeviceAssignment>& assignments,
                             const GenerationFacts& facts);

// What is to be run on this machine before the processes of `assignments`, one after the other: what several
// roles ask for in the same words once. Their environment is the launcher's and the manifest's, with the
// job's name and all its devices on this machine; nothing that only a generation knows.
Result<std::vector<Preparation>> Preparations(const spec::TrainingJob& job,
                                              const std::vector<DeviceAssignment>& assignments,
                                              const Environment& inherited, const EnvironmentFiles& files);

// Both steps for a job of which this machine is one replica and the others, if any, are like it (as --dry-run
// assumes): fills `facts.replicas` in where it is empty; `facts.self` then counts within the role.
Result<Plan> Assign(const spec::TrainingJob& job, const DeviceRequest& request, GenerationFacts facts);
// Both for a job that this machine runs alone, with all its roles; `facts.replicas` is filled in.
Result<Plan> AssignAll(const spec::TrainingJob& job, const DeviceRequest& request, GenerationFacts facts);

}  // namespace lockstep::placement
