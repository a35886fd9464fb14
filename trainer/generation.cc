#include "trainer/generation.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/layer_placement.h"
#include "trainer/layer_report.h"
#include "trainer/model_setup.h"
#include "trainer/pipeline_setup.h"
#include "trainer/scaling.h"
#include "trainer/trace_setup.h"

namespace lockstep::trainer {

namespace {

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

// Of this generation's replicas.
Config Scaled(Config config, const ProcessEnvironment& environment) {
  const int64_t whole_batch = config.batch_size;
  ScaleTo(environment.world.group_size, &config);
  if (environment.world.rank == 0 && config.batch_size != whole_batch) {
    log::Info("scaling: Linear: a batch of " + std::to_string(config.batch_size) + " instead of " +
              std::to_string(whole_batch) + ", and the learning rate with it, on " +
              std::to_string(environment.world.group_size) + " of " + std::to_string(config.replicas) +
              " replicas");
  }
  return config;
}

}  // namespace

// The backend that holds the variables, and where each layer computes.
struct Generation::Placement {
  Shape sample;
  Backend& home;
  std::map<std::string, std::string> layers;  // device by name
};

Generation::Generation(const Parts& parts) : parts_(parts) {
  parts_.config = Scaled(std::move(parts_.config), parts_.environment);
  const Config& config = parts_.config;
  const strategy::World& world = parts_.environment.world;
  trace_ = MakeTrace(parts_.environment);
  store_ = ConnectStore(parts_.environment);
  const bool first = parts_.environment.generation == 0;
  auto& dataset = parts_.dataset;
  dataset = first ? std::make_unique<SharedDataset>(config.data, world, store_.get(), kMeetingTimeout)
                  : std::make_unique<SharedDataset>(config.data, world, store_.get(), kMeetingTimeout,
                                                    dataset.get());
  PlaceModel();
  Backend& backend = placement_->home;
  const Precision precision = ChoosePrecision(config, backend, reports());
  const ModelOptions whole{.sample = placement_->sample,
                           .max_local_batch = MaxLocalBatch(config, world.size),
                           .pieces = config.gradient_accumulation,
                           .precision = precision,
                           .place = [this, precision](const LayerConfig& layer) -> Backend& {
                             return parts_.devices.For(layer, ComputeType(precision),
                                                       placement_->layers.at(layer.name));
                           },
                           // (What a device does is the strategy's to see.)
                           .trace = OnDevice() ? nullptr : trace_.get()};
  optimizer_ = MakeOptimizer(OptimizerFor(config, dataset->view().training().count), backend);
  strategy::PipelineOptions pipeline;
  const ModelOptions part = PartOfModel(whole, &pipeline);
  model_ = std::make_unique<Model>(config.model, part, backend);
  strategy_ = strategy::MakeStrategy(StrategyOptions(pipeline));
  strategy_->Setup(*model_, *optimizer_, config.seed);
  if (config.log_placement && reports()) LogPlacement();
  SetUpCheckpointing(precision);

  std::optional<Held> held;
  if (!first && strategy_->keeps_committed()) {
    held =
        HandOver(world, store_.get(), kMeetingTimeout, *strategy_, *model_, optimizer_->slots(), parts_.held);
    if (held) {
      strategy_->Import(*model_, held->position.step, held->state);
      held->state = {};
    }
  }
  loop_ = std::make_unique<TrainLoop>(TrainLoop::Parts{.config = config,
                                                       .environment = parts_.environment,
                                                       .dataset = dataset->view(),
                                                       .augmentation = augmentation_.get(),
                                                       .backend = backend,
                                                       .model = *model_,
                                                       .optimizer = *optimizer_,
                                                       .strategy = *strategy_,
                                                       .checkpointing = checkpointing_.get(),
                                                       .events = parts_.events,
                                                       .trace = trace_.get(),
                                                       .held = std::move(held),
                                                       .regroups = regroups(),
                                                       .layers = LayersHere(part)});
  TellLayers(
      {.layers = WithNames(config.model.layers),
       .sample = placement_->sample,
       .part = part.part,
       .device_of = [&](const LayerConfig& layer) { return parts_.devices.NameOf(part.place(layer)); }},
      parts_.environment, parts_.events);
}

Generation::~Generation() = default;

void Generation::PlaceModel() {
  const Config& config = parts_.config;
  const ProcessEnvironment& environment = parts_.environment;
  const data::DatasetView& view = parts_.dataset->view();
  if (!config.augmentation.none()) {
    augmentation_ = std::make_unique<data::Augmentation>(config.augmentation, view.plan(), config.seed);
  }
  const Shape sample = augmentation_ == nullptr ? view.sample_shape() : augmentation_->output_shape();
  std::vector<std::string> gpus;  // asked for only where it matters: it starts CUDA
  if (config.variables == VariablePlacement::kRoundRobin ||
      config.variables == VariablePlacement::kLeastLoaded) {
    for (const std::string& name : parts_.devices.Names()) {
      if (name.starts_with("GPU")) gpus.push_back(name);
    }
  }
  // (One process has no use for a central copy but its own.)
  const bool central = config.strategy == strategy::Kind::kCentralStorage && environment.world.size > 1;
  const std::string home =
      central || config.variables == VariablePlacement::kCpu ? "CPU:0" : environment.device;
  placement_ = std::make_unique<Placement>(
      Placement{.sample = sample,
                .home = parts_.devices.At(home),
                .layers = PlaceLayers(config.model.layers, {.rules = config.placement,
                                                            .variables = config.variables,
                                                            .own_device = environment.device,
                                                            .devices = gpus,
                                                            .sample = sample})});
}

void Generation::LogPlacement() const {
  for (const auto& [layer, device] : placement_->layers) {
    log::Info("placement: layer " + layer + ": " + parts_.devices.NameOf(parts_.devices.At(device)));
  }
  for (const NamedShape& variable : strategy_->Variables(*model_)) {
    log::Info("placement: variable " + variable.name + ": " + parts_.devices.NameOf(placement_->home));
  }
}

// For people; empty where it is the whole model, on the process's own device.
std::string Generation::LayersHere(const ModelOptions& part) const {
  constexpr size_t kLongEnough = 2000;
  const std::vector<LayerConfig> layers = WithNames(parts_.config.model.layers);
  const LayerRange range = part.part.value_or(LayerRange{.first = 0, .last = layers.size() - 1});
  const Backend& own = parts_.devices.At(parts_.environment.device);
  bool whole = !part.part.has_value();
  std::string text;
  for (size_t i = range.first; i <= range.last && i < layers.size(); ++i) {
    const Backend& device = part.place(layers[i]);
    whole = whole && &device == &own;
    if (text.size() > kLongEnough) continue;
    text += (text.empty() ? "" : ", ") + layers[i].name +
            (&device == &own ? "" : " on " + parts_.devices.NameOf(device));
    if (text.size() > kLongEnough && i < range.last) text += " …";
  }
  return whole ? "" : text;
}

// What of the model this process has, and what it tells its strategy of that.
ModelOptions Generation::PartOfModel(const ModelOptions& whole, strategy::PipelineOptions* pipeline) {
  const Config& config = parts_.config;
  if (config.strategy != strategy::Kind::kPipeline) return whole;
  PipelineSetup setup = SetUpPipeline({.model = config.model,
                                       .options = whole,
                                       .asked = config.pipeline,
                                       .slots = optimizer_->slots(),
                                       .rank = parts_.environment.world.rank,
                                       .ranks = parts_.environment.world.size,
                                       .batch_size = config.batch_size,
                                       .store = store_.get(),
                                       .timeout = kMeetingTimeout},
                                      placement_->home);
  *pipeline = std::move(setup.pipeline);
  return std::move(setup.options);
}

strategy::Options Generation::StrategyOptions(const strategy::PipelineOptions& pipeline) {
  const Config& config = parts_.config;
  const ProcessEnvironment& environment = parts_.environment;
  auto* device = dynamic_cast<DeviceBackend*>(&placement_->home);
  return {.kind = config.strategy,
          .ops = config.cross_device_ops,
          .shard = config.shard,
          .copy_shards = config.copy_shards,
          .pipeline = pipeline,
          .world = environment.world,
          .store = store_.get(),
          .threads = environment.threads,
          .interface = environment.interface,
          .reach = environment.store_address,
          .setup_timeout = kMeetingTimeout,
          .collective_timeout = kMeetingTimeout,
          .device = device,
          .communicators = device == nullptr ? nullptr : parts_.devices.communicators(),
          .soft_placement = config.soft_placement,
          .shares_device = environment.shares_device,
          .record_steps = model_->recordable(),
          .trace = trace_.get()};
}

void Generation::SetUpCheckpointing(Precision precision) {
  const Config& config = parts_.config;
  if (!config.checkpoint) return;
  checkpointing_ = std::make_unique<Checkpointing>(
      Checkpointing::Options{.config = *config.checkpoint,
                             .signature = MakeSignature(config, precision,
                                                        {.variables = strategy_->Variables(*model_),
                                                         .state = strategy_->StateVariables(*model_)},
                                                        *optimizer_, parts_.dataset->view().training().count),
                             .world = parts_.environment.world,
                             .run = parts_.environment.run,
                             .generation = parts_.environment.generation,
                             .timeout = kMeetingTimeout},
      store_.get(), *model_, *strategy_, parts_.events);
}

bool Generation::OnDevice() const { return dynamic_cast<DeviceBackend*>(&placement_->home) != nullptr; }

TrainingEnd Generation::Run() {
  const TrainingEnd end = OnDevice() ? RunOnDevice(*loop_, parts_.events) : loop_->Run();
  if (trace_ != nullptr) LeaveTrace(*trace_, parts_.environment, store_.get());
  return end;
}

void Generation::RequestStop() noexcept { strategy_->RequestStop(); }

void Generation::Abort() noexcept {
  strategy_->Abort();
  if (checkpointing_ != nullptr) checkpointing_->Abort();
}

bool Generation::can_keep() const { return regroups() && loop_->has_state(); }

std::vector<Held> Generation::Keep() { return loop_->Keep(); }

}  // namespace lockstep::trainer
