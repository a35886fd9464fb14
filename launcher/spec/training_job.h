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
enum class DeviceMap { kBalanced, kSequential };
enum class Scaling { kKeepGlobalBatch, kLinear };
enum class DataFormat { kDigits, kIdx, kCifar10, kCsv };
enum class Activation { kNone, kRelu, kGelu, kSoftmax };
enum class Padding { kValid, kSame };
enum class Loss { kSparseCategoricalCrossentropy, kMeanSquaredError };
enum class Metric { kAccuracy };
enum class OptimizerType { kSgd, kAdam };
enum class ScheduleType { kConstant, kStep, kExponential, kCosine };
enum class Precision { kFloat32, kTf32, kBFloat16 };
enum class Framework { kNone, kTensorFlow, kPyTorch, kJax, kHorovod, kMpi };
enum class ExitAction { kRestart, kFail, kIgnore };
enum class CleanPodPolicy { kNone, kRunning, kAll };
enum class GangScheduler { kNone, kCoscheduling, kVolcano, kWorkload };

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
  std::string accelerator;               // with kTpu: the kind of slice, as GKE names it
  std::string topology;                  // with kTpu: its chips, "2x4"
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
  bool copy_shards = true;
  std::optional<int> wait_for;
  bool synchronous = true;
  std::optional<int> max_gradient_age;
  std::optional<std::vector<LayerRange>> stages;  // empty: the trainer's choice
  DeviceMap device_map = DeviceMap::kBalanced;
  std::optional<int64_t> stage_memory;  // bytes
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

struct Crop {
  int height = 0;
  int width = 0;
  int padding = 0;
  bool operator==(const Crop&) const = default;
};

struct Contrast {
  double lower = 1;
  double upper = 1;
  bool operator==(const Contrast&) const = default;
};

// What is done to images before the model sees them.
struct Augmentation {
  std::optional<Crop> crop;
  bool flip = false;
  double brightness = 0;
  std::optional<Contrast> contrast;
  bool whitening = false;
  bool operator==(const Augmentation&) const = default;
};

struct Normalization {
  std::vector<double> mean;
  std::vector<double> standard_deviation;
  bool operator==(const Normalization&) const = default;
};

struct Data {
  DataFormat format = DataFormat::kDigits;
  std::string path;                // a folder, or of CSV a file; empty for Digits
  int64_t validation_samples = 0;  // taken off the end of the training samples
  int64_t samples = 0;             // Digits: training samples to draw, 50,000 by default; otherwise 0
  int64_t test_samples = 0;        // Digits: test samples to draw, 10,000 by default; otherwise 0
  std::optional<Augmentation> augmentation;
  std::optional<Normalization> normalization;
  bool operator==(const Data&) const = default;
};

// Of an initializer; those that are not given are the default's.
struct InitializerOptions {
  std::optional<double> value;               // Constant
  std::optional<double> minimum, maximum;    // RandomUniform
  std::optional<double> mean;                // RandomNormal, TruncatedNormal
  std::optional<double> standard_deviation;  // the same
  bool operator==(const InitializerOptions&) const = default;
};

// A layer that is no block. Which fields have a meaning follows from the type; fields_trainer.h says it.
struct InnerLayer {
  std::string type;  // "Dense"
  std::string name;  // default: dense, dense_1, … as Keras names them
  int64_t units = 0;
  int64_t filters = 0;
  std::vector<int64_t> kernel_size;  // height and width, or one for both
  std::vector<int64_t> pool_size;    // the same; empty: 2
  std::vector<int64_t> strides;      // the same; empty: 1, of pools their size
  Padding padding = Padding::kValid;
  Activation activation = Activation::kNone;
  bool use_bias = true;
  std::string kernel_initializer = "GlorotUniform";
  std::optional<InitializerOptions> kernel_initializer_options;
  std::string bias_initializer = "Zeros";
  std::optional<InitializerOptions> bias_initializer_options;
  double kernel_l2 = 0;  // kernelRegularizer: {l2: 1e-4}
  bool synchronised = false;
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  int64_t depth_radius = 5;
  double bias = 1;
  double alpha = 1;
  double beta = 0.5;
  std::optional<double> rate;
  int64_t input_dim = 0;
  int64_t output_dim = 0;
  bool operator==(const InnerLayer&) const = default;
};

struct Layer : InnerLayer {
  // Residual: y = activation(layers(x) + shortcut(x)).
  std::vector<InnerLayer> layers;
  std::vector<InnerLayer> shortcut;  // empty: x itself
  bool operator==(const Layer&) const = default;
};

struct Model {
  std::vector<Layer> layers;
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  double label_smoothing = 0;  // kSparseCategoricalCrossentropy
  std::vector<Metric> metrics;
  bool operator==(const Model&) const = default;
};

// How the learning rate changes; steps are counted from the end of the warm-up.
struct Schedule {
  ScheduleType type = ScheduleType::kConstant;
  int64_t warm_up_steps = 0;
  double warm_up_from = 0;
  std::vector<int64_t> boundaries;     // kStep
  std::vector<double> learning_rates;  // kStep; one for each boundary
  std::optional<int64_t> decay_steps;  // kExponential, kCosine; empty: to the end of the training
  double decay_rate = 0.96;            // kExponential
  bool staircase = false;              // kExponential
  double final_learning_rate = 0;      // kCosine
  bool operator==(const Schedule&) const = default;
};

// Of the weights.
struct MovingAverage {
  double momentum = 0.99;
  bool evaluate = true;
  bool operator==(const MovingAverage&) const = default;
};

struct Optimizer {
  OptimizerType type = OptimizerType::kSgd;
  double learning_rate = 0.01;  // Adam's default is 0.001
  double momentum = 0;          // SGD
  bool nesterov = false;        // SGD
  double beta1 = 0.9;           // Adam
  double beta2 = 0.999;         // Adam
  double epsilon = 1e-7;        // Adam; Keras' default
  Schedule schedule;
  double weight_decay = 0;
  std::optional<double> clip_value;
  std::optional<double> global_clip_norm;
  std::optional<MovingAverage> moving_average;
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
  int gradient_accumulation = 1;
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
  std::vector<std::string> environment_files;
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
  GangScheduler gang = GangScheduler::kNone;
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
