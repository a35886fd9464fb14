#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// A TrainingJob (lockstep.dev/v1alpha1) as plain structs: what the reader makes of a manifest, with the
// defaults filled in. docs/manifest.md says what each field means; the names here are the manifest's in
// snake_case.
//
// An std::optional that is still empty after the defaults means "not given, and that has a meaning of its
// own".
namespace lockstep::spec {

enum class DeviceType { kAuto, kGpu, kCpu, kTpu };
enum class Visibility { kPerProcess, kPerReplica };
enum class MemoryPolicy { kGrowth, kPreallocate, kLimit, kFraction };
enum class MemoryEnforcement { kNone, kMps };
enum class StrategyType {
  kOneDevice,
  kMirrored,
  kMultiWorkerMirrored,
  kParameterServer,
  kCentralStorage,
  kPipeline
};
enum class CrossDeviceOps { kAuto, kNccl, kHierarchicalCopy, kReductionToOneDevice, kSharedMemory, kGloo };
enum class VariablePlacement { kAuto, kCpu, kRoundRobin, kLeastLoaded };
enum class Shard { kNone, kOptimizer, kGradients };
enum class PipelineSchedule { kGPipe, kOneForwardOneBackward };
enum class Scaling { kKeepGlobalBatch, kLinear };
enum class DataFormat { kDigits, kIdx, kCifar10, kCsv };
enum class Activation { kNone, kRelu };
enum class Loss { kSparseCategoricalCrossentropy, kMeanSquaredError };
enum class Metric { kAccuracy };
enum class OptimizerType { kSgd, kAdam };
enum class Precision { kFloat32, kTf32, kBFloat16 };
enum class Framework { kNone, kTensorFlow, kPyTorch, kJax, kHorovod, kMpi };
enum class ExitAction { kRestart, kFail, kIgnore };
enum class CleanPodPolicy { kNone, kRunning, kAll };

struct VirtualDevices {
  int per_device = 1;
  std::optional<int64_t> memory_limit;  // bytes
  bool operator==(const VirtualDevices&) const = default;
};

struct DeviceMemory {
  MemoryPolicy policy = MemoryPolicy::kGrowth;
  std::optional<int64_t> limit;    // bytes; with kLimit
  std::optional<double> fraction;  // (0, 1]; with kFraction
  MemoryEnforcement enforce = MemoryEnforcement::kNone;
  bool operator==(const DeviceMemory&) const = default;
};

struct Devices {
  DeviceType type = DeviceType::kAuto;
  std::vector<std::string> visible;      // empty: all
  std::optional<Visibility> visibility;  // empty: by framework
  std::optional<VirtualDevices> virtual_devices;
  DeviceMemory memory;
  bool soft_placement = false;
  bool log_placement = false;
  bool operator==(const Devices&) const = default;
};

// First and last layer of a pipeline's stage, both included.
struct LayerRange {
  int first = 0;
  int last = 0;
  bool operator==(const LayerRange&) const = default;
};

struct Strategy {
  StrategyType type = StrategyType::kMirrored;
  CrossDeviceOps cross_device_ops = CrossDeviceOps::kAuto;
  VariablePlacement variables = VariablePlacement::kAuto;
  Shard shard = Shard::kNone;
  std::optional<int> wait_for;
  bool synchronous = true;
  std::optional<int> max_gradient_age;
  std::optional<std::vector<LayerRange>> stages;  // empty: the trainer's choice
  std::optional<int> micro_batches;
  PipelineSchedule schedule = PipelineSchedule::kGPipe;
  Scaling scaling = Scaling::kKeepGlobalBatch;
  bool operator==(const Strategy&) const = default;
};

struct LayerPlacement {
  std::string match;
  std::string device;  // as written
  bool operator==(const LayerPlacement&) const = default;
};

struct Data {
  DataFormat format = DataFormat::kDigits;
  std::string path;                // a folder, or of CSV a file; empty for Digits
  int64_t validation_samples = 0;  // taken off the end of the training samples
  int64_t samples = 0;             // Digits: training samples to draw, 50,000 by default; otherwise 0
  int64_t test_samples = 0;        // Digits: test samples to draw, 10,000 by default; otherwise 0
  bool operator==(const Data&) const = default;
};

struct Layer {
  std::string type;  // "Dense"; others are known by name and refused at run time
  std::string name;  // default: dense, dense_1, … as Keras names them
  int64_t units = 0;
  Activation activation = Activation::kNone;
  bool use_bias = true;
  std::string kernel_initializer = "GlorotUniform";
  double kernel_l2 = 0;  // kernelRegularizer: {l2: 1e-4}
  bool operator==(const Layer&) const = default;
};

struct Model {
  std::vector<Layer> layers;
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  std::vector<Metric> metrics;
  bool operator==(const Model&) const = default;
};

struct Optimizer {
  OptimizerType type = OptimizerType::kSgd;
  double learning_rate = 0.01;  // Adam's default is 0.001
  double momentum = 0;          // SGD
  bool nesterov = false;        // SGD
  double beta1 = 0.9;           // Adam
  double beta2 = 0.999;         // Adam
  double epsilon = 1e-7;        // Adam; Keras' default
  bool operator==(const Optimizer&) const = default;
};

struct Checkpoint {
  std::string directory;
  int64_t every = 0;  // steps; 0: at the end of every epoch
  int keep = 3;
  bool operator==(const Checkpoint&) const = default;
};

struct Trainer {
  Data data;
  Model model;
  Optimizer optimizer;
  int64_t batch_size = 32;  // global
  int64_t epochs = 1;
  uint64_t seed = 0;  // at most 2^63 - 1, the largest integer of the Kubernetes API
  Precision precision = Precision::kFloat32;
  std::optional<Checkpoint> checkpoint;
  bool operator==(const Trainer&) const = default;
};

struct Program {
  Framework framework = Framework::kNone;
  std::vector<std::string> command;
  std::vector<std::string> prepare;
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;
  std::optional<std::string> progress_log_pattern;
  bool operator==(const Program&) const = default;
};

struct Network {
  std::string interface;  // empty: the one of the rendezvous
  bool rdma = false;
  bool operator==(const Network&) const = default;
};

struct Http {
  std::string address = "127.0.0.1";
  int port = 0;
  bool operator==(const Http&) const = default;
};

struct ExitCodeRule {
  std::vector<int> codes;
  std::string reason;  // empty: any; "OOMKilled"
  ExitAction action = ExitAction::kRestart;
  bool operator==(const ExitCodeRule&) const = default;
};

struct RunPolicy {
  int max_restarts = 3;
  std::chrono::seconds restart_grace_period{0};
  std::chrono::seconds termination_grace_period{30};
  std::vector<ExitCodeRule> exit_codes;  // the first that matches decides
  std::optional<std::chrono::seconds> active_deadline;
  std::optional<std::chrono::seconds> schedule_timeout;
  std::optional<std::chrono::seconds> ttl_after_finished;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kNone;
  std::optional<std::chrono::seconds> progress_deadline;
  std::optional<int> min_replicas;
  bool operator==(const RunPolicy&) const = default;
};

// What the fields directly under `spec` say for one role named "worker", spec.roles says for several.
struct Role {
  std::string name = "worker";
  int replicas = 1;
  std::optional<int> processes_per_replica;  // empty: one per device that the policy yields
  Devices devices;
  std::optional<Program> program;  // instead of the job's
  std::string pod_template_json;   // as it was written, as JSON; empty: none
  bool operator==(const Role&) const = default;
};

struct TrainingJob {
  std::string name;
  std::string namespace_name = "default";
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;

  std::vector<Role> roles;  // at least one
  Strategy strategy;
  std::vector<LayerPlacement> layer_placement;
  std::optional<Trainer> trainer;  // either this or a program
  std::optional<Program> program;
  Network network;
  Http http;
  RunPolicy run_policy;
  bool suspend = false;
  bool inject_launcher = false;
  bool operator==(const TrainingJob&) const = default;
};

}  // namespace lockstep::spec
