#include <algorithm>

#include "launcher/placement/framework_environment.h"
#include "launcher/placement/memory_share.h"

// The switches are those of each framework's documentation: TensorFlow's "Use a GPU" guide, PyTorch's "CUDA
// semantics / memory management", JAX's "GPU memory allocation", and NVIDIA's "Multi-Process Service".
namespace lockstep::placement {
namespace {

using spec::Framework;
using spec::MemoryPolicy;

// Growth is the default that nobody may have asked for, so a user's own setting stands; the others are the
// manifest's.
void SetPolicy(const ProcessContext& context, EnvironmentBuilder& environment, std::string_view name,
               std::string value) {
  if (context.process.memory.policy == MemoryPolicy::kGrowth) {
    environment.SetDefault(name, std::move(value));
  } else {
    environment.Set(name, std::move(value));
  }
}

class MemoryPolicyOf {
 public:
  MemoryPolicyOf(const ProcessContext& context, EnvironmentBuilder& environment,
                 std::vector<std::string>& notices)
      : context_(context), environment_(environment), notices_(notices), share_(context.process.memory) {}

  void TensorFlow() {
    SetPolicy(context_, environment_, "TF_FORCE_GPU_ALLOW_GROWTH",
              share_.policy == MemoryPolicy::kPreallocate ? "false" : "true");
    // Shared GPUs stay usable when each grows, which is the best the environment can do.
    if (Limited()) {
      CannotHonour(
          "TensorFlow takes a limit only through its API (tf.config.set_logical_device_configuration); "
          "its memory grows on demand");
    }
    const auto& virtual_devices = context_.view.role->devices.virtual_devices;
    if (virtual_devices && virtual_devices->per_device > 1 && context_.assignment.processes.size() == 1) {
      AddNotice(notices_,
                "TensorFlow divides a GPU only through its API (tf.config.set_logical_device_configuration): "
                "its one process sees whole GPUs; set processesPerReplica for one process a virtual device");
    }
  }

  // per_process_memory_fraction stands in the newer variable only: the older one is what older versions read,
  // and they refuse keys that they don't know.
  void PyTorch() {
    if (share_.policy == MemoryPolicy::kPreallocate)
      CannotHonour("PyTorch has no preallocation; its memory grows");
    std::string options = "expandable_segments:True";
    if (Limited()) {
      if (context_.facts.pytorch_knows_memory_fraction && share_.fraction) {
        environment_.Set("PYTORCH_ALLOC_CONF",
                         options + ",per_process_memory_fraction:" + FormatFraction(*share_.fraction));
        environment_.Remove("PYTORCH_CUDA_ALLOC_CONF");
        return;
      }
      CannotHonour(
          "this PyTorch takes a limit only through its API (torch.cuda.set_per_process_memory_fraction)");
    }
    // One set by the user stands for both: the two are the same setting under two names.
    if (environment_.SetByUser("PYTORCH_ALLOC_CONF") || environment_.SetByUser("PYTORCH_CUDA_ALLOC_CONF")) {
      return;
    }
    environment_.SetDefault("PYTORCH_ALLOC_CONF", options);
    environment_.SetDefault("PYTORCH_CUDA_ALLOC_CONF", options);
  }

  void Jax() {
    SetPolicy(context_, environment_, "XLA_PYTHON_CLIENT_PREALLOCATE",
              share_.policy == MemoryPolicy::kPreallocate ? "true" : "false");
    if (!Limited()) return;
    if (!share_.fraction) {
      return CannotHonour("the device's memory is not known, and JAX takes fractions only");
    }
    environment_.Set("XLA_CLIENT_MEM_FRACTION", FormatFraction(*share_.fraction));
    environment_.Remove("XLA_PYTHON_CLIENT_MEM_FRACTION");  // the older name; JAX refuses both together
  }

  void Other() {
    if (share_.policy == MemoryPolicy::kPreallocate) {
      return CannotHonour("whether memory is allocated at once is up to the program");
    }
    if (!Limited()) return;
    if (share_.limit) environment_.SetDefault("CUPY_GPU_MEMORY_LIMIT", std::to_string(*share_.limit));
    CannotHonour("only CuPy takes a limit from the environment");
  }

 private:
  bool Limited() const { return share_.limit || share_.policy == MemoryPolicy::kFraction; }

  void CannotHonour(const std::string& why) {
    if (share_.mps) return;  // MPS holds the limit
    const std::string advice = Limited() ? "; enforce: MPS holds any program to its limit" : "";
    AddNotice(notices_, context_.view.field + "devices.memory: " + why + advice);
  }

  const ProcessContext& context_;
  EnvironmentBuilder& environment_;
  std::vector<std::string>& notices_;
  const MemoryShare& share_;
};

// "0=1024M,1=1024M": by the ordinal that the process sees (UUIDs as keys were seen not to work).
std::string MpsLimits(const ProcessDevices& process) {
  std::string limits;
  for (size_t i = 0; i < process.visible.size(); ++i) {
    limits += (limits.empty() ? "" : ",") + std::to_string(i) + "=" +
              std::to_string(std::max<int64_t>(1, *process.memory.limit >> 20)) + "M";
  }
  return limits;
}

}  // namespace

void AddMemoryVariables(const ProcessContext& context, EnvironmentBuilder& environment,
                        std::vector<std::string>& notices) {
  if (context.process.type != spec::DeviceType::kGpu) return;
  if (context.process.memory.mps && context.process.memory.limit) {
    environment.Set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", MpsLimits(context.process));
    if (!context.facts.mps_pipe_directory.empty()) {
      environment.Set("CUDA_MPS_PIPE_DIRECTORY", context.facts.mps_pipe_directory);
      environment.Set("CUDA_MPS_LOG_DIRECTORY", context.facts.mps_log_directory);
    }
  }
  MemoryPolicyOf policy(context, environment, notices);
  switch (context.view.framework()) {
    case Framework::kTensorFlow:
      return policy.TensorFlow();
    case Framework::kPyTorch:
      return policy.PyTorch();
    case Framework::kJax:
      return policy.Jax();
    case Framework::kHorovod:
    case Framework::kMpi:
    case Framework::kNone:
      return policy.Other();
  }
}

}  // namespace lockstep::placement
