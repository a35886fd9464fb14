#include "launcher/placement/framework_environment.h"

#include <nlohmann/json.hpp>

namespace lockstep::placement {
namespace {

using spec::Framework;

std::string JoinAddress(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// tensorflow.org/guide/distributed_training, "Setting up the TF_CONFIG environment variable". Every process
// listens on MASTER_PORT + its rank: one port each, also where several share a machine. The evaluator is not
// part of the cluster. A process that is alone gets none, as with Kubeflow: a script that finds TF_CONFIG
// waits for others.
void AddTensorFlow(const ProcessContext& context, EnvironmentBuilder& environment) {
  if (context.world_size < 2) return;
  nlohmann::ordered_json cluster = nlohmann::ordered_json::object();
  int rank = 0;
  for (const ReplicaFacts& replica : context.facts.replicas) {
    for (int i = 0; i < replica.processes; ++i, ++rank) {
      if (replica.role == "evaluator") continue;
      cluster[replica.role].push_back(JoinAddress(replica.address, context.facts.master_port + rank));
    }
  }
  const nlohmann::ordered_json config = {
      {"cluster", cluster}, {"task", {{"type", context.assignment.role}, {"index", context.role_rank}}}};
  environment.Set("TF_CONFIG", config.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// What torchrun sets (torch/distributed/elastic/agent/server/local_elastic_agent.py). Without the agent's
// store rank 0 itself listens on MASTER_PORT.
void AddPyTorch(const ProcessContext& context, EnvironmentBuilder& environment) {
  environment.Set("ROLE_NAME", context.assignment.role);
  environment.Set("ROLE_RANK", std::to_string(context.role_rank));
  environment.Set("ROLE_WORLD_SIZE", std::to_string(context.role_size));
  environment.Set("TORCHELASTIC_RUN_ID", context.job.name);
  environment.Set("TORCHELASTIC_RESTART_COUNT", std::to_string(context.facts.generation));
  environment.Set("TORCHELASTIC_MAX_RESTARTS", std::to_string(context.job.run_policy.max_restarts));
  environment.Set("TORCHELASTIC_USE_AGENT_STORE", "False");
  environment.SetDefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
}

// "0,1": the process's devices among those that it sees.
std::string LocalDevices(const ProcessContext& context) {
  const size_t visible = context.process.visible.size();
  const bool chooses = context.assignment.visibility == spec::Visibility::kPerReplica &&
                       context.assignment.processes.size() > 1;
  if (visible > 0 && chooses) return std::to_string(static_cast<size_t>(context.index) % visible);
  std::string devices = "0";
  for (size_t i = 1; i < visible; ++i) devices += "," + std::to_string(i);
  return devices;
}

// jax.distributed.initialize() without arguments reads the coordinator's address and the local devices from
// JAX's own variables, but how many processes there are and which one it is only from those of a cluster that
// it knows (jax/_src/distributed.py, jax/_src/clusters). It gets Open MPI's, of which orte_hnp_uri, by which
// JAX recognises it, is read for the address alone. The processes of a role are one JAX job, whose first
// process serves the coordinator.
void AddJax(const ProcessContext& context, EnvironmentBuilder& environment) {
  environment.Set(
      "JAX_COORDINATOR_ADDRESS",
      JoinAddress(context.role_first_rank == 0 ? context.facts.master_address : context.role_address,
                  context.facts.master_port + context.role_first_rank));
  environment.Set("JAX_NUM_PROCESSES", std::to_string(context.role_size));
  environment.Set("JAX_PROCESS_ID", std::to_string(context.role_rank));
  environment.Set("OMPI_MCA_orte_hnp_uri", "lockstep");
  environment.Set("OMPI_COMM_WORLD_SIZE", std::to_string(context.role_size));
  environment.Set("OMPI_COMM_WORLD_RANK", std::to_string(context.role_rank));
  environment.Set("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(context.process.local_rank));
  if (context.process.type == spec::DeviceType::kTpu) {
    environment.SetDefault("JAX_PLATFORMS", "tpu");
    return;
  }
  if (context.process.type == spec::DeviceType::kCpu) environment.SetDefault("JAX_PLATFORMS", "cpu");
  // Among those that it sees; with Open MPI's local rank alone JAX would take the one of that number.
  environment.Set("JAX_LOCAL_DEVICE_IDS", LocalDevices(context));
}

// The names under which scripts look for their rank (Open MPI's mpirun sets them), and what MPI_Init itself
// asks for: a PMIx server.
void AddMpi(const ProcessContext& context, EnvironmentBuilder& environment) {
  environment.Set("OMPI_COMM_WORLD_RANK", std::to_string(context.rank));
  environment.Set("OMPI_COMM_WORLD_SIZE", std::to_string(context.world_size));
  environment.Set("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(context.process.local_rank));
  environment.Set("OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(context.local_size));
  environment.Set("OMPI_COMM_WORLD_NODE_RANK", std::to_string(context.process.local_rank));
  const auto local_rank = static_cast<size_t>(context.process.local_rank);
  if (local_rank >= context.facts.mpi.size()) return;
  // Open MPI 4 asks PMIx only where it knows who started it, and IBM's JSM does it as we do: it gives PMIx
  // and has bound the ranks to their processors (orte/mca/schizo/jsm). Open MPI 5 goes by PMIx alone.
  environment.Set("JSM_JSRUN_PORT", "0");
  // OpenPMIx looks for a user's folder, and does not live where there is neither this nor the user.
  environment.SetDefault("HOME", "/tmp");
  // Where Open MPI 4 and 5 keep what ranks of a machine share: a killed one leaves it there.
  environment.SetDefault("OMPI_MCA_btl_vader_backing_directory", context.facts.mpi_folder);
  environment.SetDefault("OMPI_MCA_btl_sm_backing_directory", context.facts.mpi_folder);
  for (const auto& [name, value] : context.facts.mpi[local_rank]) environment.Set(name, value);
}

// What horovodrun sets (horovod/runner/gloo_run.py, common/gloo/gloo_context.cc). Built with MPI Horovod asks
// MPI, and otherwise Gloo, unless HOROVOD_CONTROLLER says which; it gets what either needs.
void AddHorovod(const ProcessContext& context, EnvironmentBuilder& environment) {
  AddMpi(context, environment);
  environment.Set("HOROVOD_RANK", std::to_string(context.rank));
  environment.Set("HOROVOD_SIZE", std::to_string(context.world_size));
  environment.Set("HOROVOD_LOCAL_RANK", std::to_string(context.process.local_rank));
  environment.Set("HOROVOD_LOCAL_SIZE", std::to_string(context.local_size));
  environment.Set("HOROVOD_CROSS_RANK", std::to_string(context.machine));
  environment.Set("HOROVOD_CROSS_SIZE", std::to_string(context.machines));
  // Those of one name share memory.
  environment.Set("HOROVOD_HOSTNAME", "machine-" + std::to_string(context.machine));
  if (!context.job.network.interface.empty()) {
    environment.Set("HOROVOD_GLOO_IFACE", context.job.network.interface);
  }
}

}  // namespace

// cloud.google.com/kubernetes-engine/docs/how-to/tpus: what GKE itself puts into the pods of a slice, here
// also where its admission webhook does not know the owner of the pods.
void AddTpuVariables(const ProcessContext& context, EnvironmentBuilder& environment) {
  if (context.process.type != spec::DeviceType::kTpu) return;
  std::string names;
  int machines = 0;
  for (const ReplicaFacts& replica : context.facts.replicas) {
    if (replica.role != context.assignment.role) continue;
    names += (machines++ > 0 ? "," : "") + replica.address;
  }
  environment.Set("TPU_WORKER_ID", std::to_string(context.role_rank));
  environment.Set("TPU_WORKER_HOSTNAMES", machines > 1 ? names : "localhost");
  environment.SetDefault("PJRT_DEVICE", "TPU");  // PyTorch/XLA
}

void AddFrameworkVariables(const ProcessContext& context, EnvironmentBuilder& environment) {
  if (context.assignment.shared_gpus) {
    // Before 2.30 NCCL ignores this, and refuses two ranks on one GPU.
    environment.SetDefault("NCCL_MULTI_RANK_GPU_ENABLE", "1");
  }
  if (!context.job.network.interface.empty()) {
    environment.Set("NCCL_SOCKET_IFNAME", "=" + context.job.network.interface);  // "=": not as a prefix
    environment.Set("GLOO_SOCKET_IFNAME", context.job.network.interface);
  }
  switch (context.view.framework()) {
    case Framework::kTensorFlow:
      return AddTensorFlow(context, environment);
    case Framework::kPyTorch:
      return AddPyTorch(context, environment);
    case Framework::kJax:
      return AddJax(context, environment);
    case Framework::kHorovod:
      return AddHorovod(context, environment);
    case Framework::kMpi:
      return AddMpi(context, environment);
    case Framework::kNone:
      return;
  }
}

}  // namespace lockstep::placement
