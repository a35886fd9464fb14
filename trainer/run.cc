#include "trainer/run.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/store_client.h"
#include "common/log.h"
#include "trainer/checkpointing.h"
#include "trainer/config.h"
#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/layer_placement.h"
#include "trainer/process_environment.h"
#include "trainer/shared_dataset.h"
#include "trainer/stop_signal.h"
#include "trainer/train_loop.h"

namespace lockstep::trainer {

namespace {

// How long the ranks may take to come together at the start, and to answer one another later. The launcher
// finds a hung rank sooner (docs/contract.md); this is the net under it.
constexpr std::chrono::seconds kMeetingTimeout{120};

std::unique_ptr<contract::Store> ConnectStore(const ProcessEnvironment& environment) {
  if (environment.world.size == 1) return nullptr;
  auto store = contract::StoreFromEnvironment(std::chrono::steady_clock::now() + kMeetingTimeout);
  if (!store.ok()) throw RendezvousFailed(store.status().message());
  return std::move(*store);
}

// Why this device has no instructions for the precision; empty: it has.
std::string Missing(Precision precision, const Backend& backend) {
  if (precision == Precision::kTf32) {
    const auto* device = dynamic_cast<const DeviceBackend*>(&backend);
    if (device == nullptr) return "TF32 is a GPU's, and this process computes on the CPU";
    const int capability = device->identity().capability;
    return capability >= 80 ? ""
                            : "TF32 needs a GPU of compute capability 8.0, and this one has " +
                                  std::to_string(capability / 10) + "." + std::to_string(capability % 10);
  }
  if (precision == Precision::kBFloat16) {
    const Support support = backend.Supports(Op::kDense, DataType::kBFloat16);
    if (!support.supported || !support.native) return support.reason;
  }
  return "";
}

// As asked for where there are instructions for it; elsewhere an error, or Float32 with soft placement.
Precision ChoosePrecision(const Config& config, const Backend& backend, bool reports) {
  const std::string missing = Missing(config.precision, backend);
  if (missing.empty()) return config.precision;
  const std::string name = PrecisionName(config.precision);
  if (!config.soft_placement) {
    throw Unsupported("trainer.precision: " + name + " cannot be had here: " + missing +
                      "; use Float32, or devices.softPlacement: true to fall back on it");
  }
  if (reports) log::Warning("trainer.precision: Float32 instead of " + name + ": " + missing);
  return Precision::kFloat32;
}

// The backend that holds the variables, and where each layer computes.
struct Placement {
  Backend& home;
  std::map<std::string, std::string> layers;  // device by name
};

Placement PlaceModel(const Config& config, const ProcessEnvironment& environment, int64_t features,
                     Devices& devices) {
  std::vector<std::string> gpus;  // asked for only where it matters: it starts CUDA
  if (config.variables == VariablePlacement::kRoundRobin ||
      config.variables == VariablePlacement::kLeastLoaded) {
    for (const std::string& name : devices.Names()) {
      if (name.starts_with("GPU")) gpus.push_back(name);
    }
  }
  const std::string home = config.variables == VariablePlacement::kCpu ? "CPU:0" : environment.device;
  return {.home = devices.At(home),
          .layers = PlaceLayers(config.model.layers, {.rules = config.placement,
                                                      .variables = config.variables,
                                                      .own_device = environment.device,
                                                      .devices = gpus,
                                                      .features = features})};
}

void LogPlacement(const Placement& placement, const Model& model, Devices& devices) {
  for (const auto& [layer, device] : placement.layers) {
    log::Info("placement: layer " + layer + ": " + devices.NameOf(devices.At(device)));
  }
  for (const Variable& variable : model.layout().variables) {
    log::Info("placement: variable " + variable.name + ": " + devices.NameOf(placement.home));
  }
}

strategy::Options StrategyOptions(const Config& config, const ProcessEnvironment& environment,
                                  contract::Store* store, const Model& model, Backend& backend,
                                  Devices& devices) {
  auto* device = dynamic_cast<DeviceBackend*>(&backend);
  return {.kind = config.strategy,
          .ops = config.cross_device_ops,
          .world = environment.world,
          .store = store,
          .threads = environment.threads,
          .interface = environment.interface,
          .reach = environment.store_address,
          .setup_timeout = kMeetingTimeout,
          .collective_timeout = kMeetingTimeout,
          .device = device,
          .communicators = device == nullptr ? nullptr : devices.communicators(),
          .shares_device = environment.shares_device,
          .record_steps = model.recordable()};
}

// In canonical order: the layers from the first to the last, where the flat layout begins with the last.
std::vector<checkpoint::Variable> CanonicalVariables(const ParameterLayout& layout) {
  std::vector<checkpoint::Variable> variables;
  std::string layer;
  size_t in_layer = 0;  // variables of `layer` so far, which stand in front
  for (const Variable& variable : layout.variables) {
    const std::string of = variable.name.substr(0, variable.name.rfind('/'));
    in_layer = of == layer ? in_layer + 1 : 0;
    layer = of;
    variables.insert(variables.begin() + static_cast<std::ptrdiff_t>(in_layer),
                     {.name = variable.name, .shape = variable.shape.dims()});
  }
  return variables;
}

checkpoint::Signature MakeSignature(const Config& config, Precision precision, const Model& model,
                                    const data::DatasetView& dataset) {
  checkpoint::Signature signature;
  signature.variables = CanonicalVariables(model.layout());
  const OptimizerOptions& optimizer = config.optimizer;
  signature.optimizer = optimizer.kind == OptimizerKind::kAdam ? "Adam" : "SGD";
  if (optimizer.kind == OptimizerKind::kAdam) {
    signature.slots = {"m", "v"};
  } else if (optimizer.momentum > 0) {
    signature.slots = {"momentum"};
  }
  signature.precision = PrecisionName(precision);
  signature.seed = config.seed;
  signature.training_samples = dataset.training().count;
  return signature;
}

// A device may be stuck behind a rank that is gone, and then whatever it holds waits for it when it is let
// go: the process ends at once instead.
TrainingEnd RunOnDevice(TrainLoop& loop, EventWriter& events) {
  try {
    return loop.Run();
  } catch (const Error& error) {
    log::Error(error.what());
    events.Write(contract::ErrorEvent{.kind = error.kind(), .message = error.what()});
    std::fflush(stdout);
    ::_exit(error.exit_code());
  }
}

}  // namespace

int Run(EventWriter& events) {
  const ProcessEnvironment environment = ReadProcessEnvironment();
  // Until the training runs there is nothing to save: asked to stop before, the process just ends.
  std::atomic<strategy::Strategy*> training{nullptr};
  StopSignal stop([&training] {
    if (strategy::Strategy* running = training.load()) {
      running->RequestStop();
    } else {
      ::_exit(contract::kExitCheckpointed);
    }
  });

  events.Write(contract::PhaseEvent{.phase = "Initializing"});
  const Config config = ReadConfig(environment.config_file);
  const bool reports = environment.world.rank == 0;
  const std::unique_ptr<contract::Store> store = ConnectStore(environment);
  const SharedDataset dataset(config.data, environment.world, store.get(), kMeetingTimeout);

  Devices devices({.threads = environment.threads,
                   .memory = environment.memory,
                   .soft_placement = config.soft_placement});
  const Placement placement = PlaceModel(config, environment, dataset.view().features(), devices);
  Backend& backend = placement.home;
  const Precision precision = ChoosePrecision(config, backend, reports);
  Model model(config.model,
              {.features = dataset.view().features(),
               .max_local_batch = MaxLocalBatch(config, environment.world.size),
               .precision = precision,
               .place = [&](const std::string& layer) -> Backend& {
                 return devices.For(Op::kDense, ComputeType(precision), placement.layers.at(layer));
               }},
              backend);
  if (config.log_placement && reports) LogPlacement(placement, model, devices);
  const auto optimizer = MakeOptimizer(config.optimizer, backend);
  const auto strategy =
      strategy::MakeStrategy(StrategyOptions(config, environment, store.get(), model, backend, devices));
  strategy->Setup(model, *optimizer, config.seed);

  std::unique_ptr<Checkpointing> checkpointing;
  if (config.checkpoint) {
    checkpointing = std::make_unique<Checkpointing>(
        Checkpointing::Options{.config = *config.checkpoint,
                               .signature = MakeSignature(config, precision, model, dataset.view()),
                               .world = environment.world,
                               .run = environment.run,
                               .generation = environment.generation,
                               .timeout = kMeetingTimeout},
        store.get(), model, *strategy, events);
  }
  TrainLoop loop({.config = config,
                  .environment = environment,
                  .dataset = dataset.view(),
                  .backend = backend,
                  .model = model,
                  .optimizer = *optimizer,
                  .strategy = *strategy,
                  .checkpointing = checkpointing.get(),
                  .events = events});
  training = strategy.get();
  const TrainingEnd end =
      dynamic_cast<DeviceBackend*>(&backend) == nullptr ? loop.Run() : RunOnDevice(loop, events);
  training = nullptr;
  return end == TrainingEnd::kStopped ? contract::kExitCheckpointed : contract::kExitDone;
}

}  // namespace lockstep::trainer
