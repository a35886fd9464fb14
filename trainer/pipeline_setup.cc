#include "trainer/pipeline_setup.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>

#include "common/log.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kStagesKey[] = "pipeline/stages";

// The best of so many rounds, since what else runs on the machine only ever takes away; and not for longer
// than this.
constexpr int kRounds = 7;
constexpr std::chrono::milliseconds kLongEnough{300};

// A layer alone, on zeros: what it computes on does not change how long that takes.
double SecondsOf(Model& model, const ModelOptions& options, Backend& backend) {
  const int64_t n = options.max_local_batch;
  const auto zeros = [&](size_t bytes) {
    Buffer buffer(backend.allocator(), bytes);
    backend.Zero(buffer.data(), bytes);
    return buffer;
  };
  const auto samples = [&](int64_t values, DataType type) {
    return zeros(static_cast<size_t>(n * values) * SizeOf(type));
  };
  const auto total = static_cast<size_t>(model.layout().total);
  const Buffer parameters = zeros(total * sizeof(float)), gradients = zeros(total * sizeof(float));
  const Buffer inputs = samples(model.features(), model.input_type());
  const Buffer labels = samples(std::max<int64_t>(1, model.outputs()), DataType::kFloat32);
  const Buffer dy = samples(model.outputs(), model.output_gradient_type());
  const Buffer dx = samples(model.features(), model.input_type());
  const std::vector<uint32_t> numbers(static_cast<size_t>(n));
  model.Bind(parameters.span<float>(), gradients.span<float>());
  model.Initialize(0);
  const ModelBatch batch{
      .inputs = inputs.data(), .labels = labels.data(), .n = n, .keys = {.samples = numbers}};
  double best = 0;
  const auto begin = Clock::now();
  // (The first round makes what later ones find.)
  for (int round = 0; round <= kRounds && (round < 2 || Clock::now() - begin < kLongEnough); ++round) {
    const auto start = Clock::now();
    model.Forward(batch.TrainingPass(), inputs.data());
    if (model.has_loss()) model.EnqueueLoss(batch, dy.data());
    model.Backward(batch.TrainingPass(), inputs.data(), dy.data(),
                   model.wants_input_gradient() ? dx.data() : nullptr, {});
    backend.Synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (round == 1 || (round > 1 && seconds < best)) best = seconds;
  }
  return best;
}

int LayersWithVariables(const ModelConfig& model, Shape shape) {
  int count = 0;
  for (const LayerConfig& layer : model.layers) {
    const LayerFacts facts = FactsOf(layer, shape);
    shape = facts.output;
    count += facts.variables.empty() ? 0 : 1;
  }
  return count;
}

int64_t PartsOf(int64_t samples, int parts) { return (samples + parts - 1) / parts; }

std::string Encode(const std::vector<PipelineStage>& stages) {
  std::ostringstream text;
  for (const PipelineStage& stage : stages) {
    text << stage.layers.first << ' ' << stage.layers.last << ' ';
  }
  return text.str();
}

std::vector<PipelineStage> Decode(const std::string& text) {
  std::istringstream in(text);
  std::vector<PipelineStage> stages;
  PipelineStage stage;
  while (in >> stage.layers.first >> stage.layers.last) stages.push_back(stage);
  return stages;
}

int MicroBatches(const strategy::PipelineOptions& asked, int stages) {
  return asked.micro_batches > 0 ? asked.micro_batches : strategy::DefaultMicroBatches(stages);
}

// Samples of a micro-batch.
int64_t MicroBatchSize(const PipelineRequest& request, int stages) {
  const int pipelines = strategy::PlaceInPipeline(0, request.ranks, stages).pipelines;
  return PartsOf(PartsOf(request.batch_size, pipelines), MicroBatches(request.asked, stages));
}

// So many stages, as given where they are, else as the map asks for.
std::vector<PipelineStage> CutInto(int stages, const PipelineRequest& request, Backend& backend) {
  const strategy::PipelineOptions& asked = request.asked;
  const bool balanced = asked.stages.empty() && asked.map == strategy::DeviceMap::kBalanced;
  const auto costs = MeasureLayers(request.model, request.options, MicroBatchSize(request, stages),
                                   request.slots, backend, /*timed=*/balanced);
  const strategy::BalanceOptions options{.stages = stages,
                                         .micro_batches = MicroBatches(asked, stages),
                                         .schedule = asked.schedule,
                                         .memory = asked.stage_memory};
  std::vector<PipelineStage> cut;
  for (const LayerRange& layers : !asked.stages.empty() ? asked.stages
                                  : balanced            ? strategy::BalanceStages(costs, options)
                                                        : strategy::FillStages(costs, options)) {
    PipelineStage stage{.layers = layers};
    for (size_t i = layers.first; i <= layers.last; ++i) stage.seconds += costs[i].seconds;
    stage.bytes = strategy::StageBytes(costs, layers, static_cast<int>(cut.size()), options);
    cut.push_back(stage);
  }
  return cut;
}

// The same on every rank: what rank 0 has found.
std::vector<PipelineStage> AgreeOnStages(const PipelineRequest& request, Backend& backend) {
  std::vector<PipelineStage> stages;
  for (const LayerRange& layers : request.asked.stages) stages.push_back({.layers = layers});
  if (!stages.empty()) return stages;
  const auto deadline = Clock::now() + request.timeout;
  const auto check = [](const Status& status) {
    if (!status.ok()) throw RendezvousFailed("agreeing on the stages: " + status.message());
  };
  if (request.rank == 0) {
    stages = MapStages(request, backend);
    if (request.store != nullptr) check(request.store->Set(kStagesKey, Encode(stages), deadline));
    return stages;
  }
  const Result<std::string> told = request.store->Get(kStagesKey, deadline);
  check(told.status());
  return Decode(*told);
}

void LogStages(const PipelineRequest& request, const std::vector<PipelineStage>& stages) {
  const auto layers = WithNames(request.model.layers);
  const int count = static_cast<int>(stages.size());
  for (int s = 0; s < count; ++s) {
    const PipelineStage& stage = stages[static_cast<size_t>(s)];
    std::string names;
    for (size_t i = stage.layers.first; i <= stage.layers.last; ++i) {
      names += (names.empty() ? "" : ", ") + layers[i].name;
    }
    std::string ranks;
    for (int r = s; r < request.ranks; r += count) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    std::string line = "pipeline: stage " + std::to_string(s) + " (rank " + ranks + "): " + names;
    char cost[96] = "";
    if (stage.seconds > 0) {
      std::snprintf(cost, sizeof cost, "; a micro-batch takes it %.3f ms", 1e3 * stage.seconds);
      line += cost;
    }
    if (stage.bytes > 0) {
      std::snprintf(cost, sizeof cost, "; it has %.1f MB", static_cast<double>(stage.bytes) / 1e6);
      line += cost;
    }
    log::Info(line);
  }
}

}  // namespace

std::vector<strategy::LayerCost> MeasureLayers(const ModelConfig& model, const ModelOptions& options,
                                               int64_t samples, int slots, Backend& backend, bool timed) {
  std::vector<strategy::LayerCost> costs;
  Shape shape = options.sample;
  const auto named = WithNames(model.layers);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerFacts facts = FactsOf(named[i], shape);
    shape = facts.output;
    strategy::LayerCost cost{.has_variables = !facts.variables.empty()};
    ModelOptions alone = options;
    alone.part = LayerRange{i, i};
    alone.max_local_batch = samples;
    alone.passes_in_flight = 1;
    Model layer(model, alone, backend);
    if (timed && !OpsOf(named[i]).empty()) cost.seconds = SecondsOf(layer, alone, backend);
    // Parameters, the gradients of a micro-batch and their sum, the optimizer's state.
    cost.bytes = layer.layout().total * static_cast<int64_t>(sizeof(float)) * (3 + slots);
    cost.bytes_in_flight = samples * layer.outputs() * static_cast<int64_t>(SizeOf(layer.output_type()));
    costs.push_back(cost);
  }
  return costs;
}

std::vector<PipelineStage> MapStages(const PipelineRequest& request, Backend& backend) {
  const strategy::PipelineOptions& asked = request.asked;
  if (!asked.stages.empty()) return CutInto(static_cast<int>(asked.stages.size()), request, backend);
  const int most =
      strategy::AutomaticStages(request.ranks, LayersWithVariables(request.model, request.options.sample));
  if (asked.map == strategy::DeviceMap::kBalanced) return CutInto(most, request, backend);
  std::string why;
  for (int stages = 1; stages <= most; ++stages) {
    if (request.ranks % stages != 0) continue;
    try {
      return CutInto(stages, request, backend);
    } catch (const BadModel& failure) {
      why = failure.what();
    }
  }
  throw BadModel(why);
}

PipelineSetup SetUpPipeline(const PipelineRequest& request, Backend& backend) {
  const std::vector<PipelineStage> stages = AgreeOnStages(request, backend);
  const int count = static_cast<int>(stages.size());
  const strategy::PipelinePlace place = strategy::PlaceInPipeline(request.rank, request.ranks, count);
  PipelineSetup setup{.pipeline = request.asked, .options = request.options};
  const int micro_batches = setup.pipeline.micro_batches = MicroBatches(request.asked, count);
  setup.options.max_local_batch = MicroBatchSize(request, count);
  setup.pipeline.stages.clear();
  for (const PipelineStage& stage : stages) setup.pipeline.stages.push_back(stage.layers);
  if (request.rank == 0) LogStages(request, stages);
  if (request.ranks == 1) {  // one device, which takes a batch as it is
    setup.options.max_local_batch = request.batch_size;
    return setup;
  }
  setup.options.part = setup.pipeline.stages[static_cast<size_t>(place.stage)];
  setup.options.passes_in_flight =
      strategy::PassesInFlight(setup.pipeline.schedule, place.stage, count, micro_batches);
  return setup;
}

}  // namespace lockstep::trainer
