#include "trainer/served_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/log.h"
#include "trainer/backend/device_backend.h"
#include "trainer/checkpointing.h"
#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/first_server.h"
#include "trainer/layer_report.h"
#include "trainer/model_setup.h"
#include "trainer/parameter_server/client.h"
#include "trainer/parameter_server/follower.h"
#include "trainer/parameter_server/server.h"
#include "trainer/shared_dataset.h"
#include "trainer/strategy/fingerprint.h"
#include "trainer/trace_setup.h"
#include "trainer/worker_loop.h"

namespace lockstep::trainer {

namespace {

using namespace parameter_server;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

struct Job {
  const Config& config;
  const ProcessEnvironment& environment;
  EventWriter& events;
  StopSignal& stop;
  contract::Store& store;
};

// The numbers that all processes of the job have to agree on.
struct Numbers {
  int servers = 0;
  int workers = 0;
  bool evaluator = false;
  int parts = 1;  // of a global batch

  int64_t LocalBatch(const Config& config) const { return (config.batch_size + parts - 1) / parts; }
};

Numbers NumbersOf(const Job& job) {
  const auto count = [&](const char* role) {
    const auto found = job.environment.roles.find(role);
    return found == job.environment.roles.end() ? 0 : found->second;
  };
  Numbers numbers{.servers = count("ps"), .workers = count("worker"), .evaluator = count("evaluator") > 0};
  if (numbers.servers < 1 || numbers.workers < 1) {
    throw Error(contract::kExitUsage, "BadEnvironment",
                "ParameterServer needs the roles ps and worker, and LOCKSTEP_ROLES says of them " +
                    std::to_string(numbers.servers) + " and " + std::to_string(numbers.workers));
  }
  const ServedConfig& served = *job.config.served;
  if (served.synchronous) {
    numbers.parts = std::clamp(served.wait_for.value_or(numbers.workers), 1, numbers.workers);
  }
  return numbers;
}

// A model as the servers have it, on a processor, and where its variables are served.
struct Served {
  Served(const Job& job, Backend& processor, const ModelOptions& options, int64_t training_samples)
      : numbers(NumbersOf(job)),
        backend(processor),
        model(job.config.model, options, backend),
        optimizer(MakeOptimizer(OptimizerFor(job.config, training_samples), backend)),
        pieces(Partition(model.layout(), numbers.servers,
                         job.config.variables == VariablePlacement::kRoundRobin ? Spread::kRoundRobin
                                                                                : Spread::kLeastLoaded)) {
    if (model.state_size() > 0 || model.sums_over_replicas()) {
      throw Unsupported(
          "strategy.type: ParameterServer serves trained variables, and this model has a state beside them "
          "(BatchNormalization); use Mirrored, or leave the layer out");
    }
    if (optimizer->clips_by_norm() || job.config.evaluate_average || !job.config.augmentation.none()) {
      throw Unsupported(
          "strategy.type: ParameterServer has no globalClipNorm, evaluation with the movingAverage, "
          "augmentation "
          "nor normalization; use Mirrored, or leave them out");
    }
  }

  // Of a model that only says how variables lie, which is the same whatever computes with them.
  static ModelOptions ToLayOut(const Shape& sample) { return {.sample = sample, .max_local_batch = 1}; }

  int64_t fingerprint() const {
    return static_cast<int64_t>(strategy::Fingerprint(model.layout(), optimizer->slots()));
  }

  Numbers numbers;
  Backend& backend;
  Model model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<std::vector<Piece>> pieces;  // of each server
};

Membership SelfOf(const ProcessEnvironment& environment) {
  Result<contract::Token> token = contract::Token::Read(environment.token_file);
  if (!token.ok()) throw RendezvousFailed("the job's token: " + token.status().message());
  return {.token = *token,
          .job = environment.job,
          .generation = environment.generation,
          .rank = environment.world.rank};
}

PeerOptions PeerOf(const Job& job, PeerRole role, const Served& served) {
  return {.self = SelfOf(job.environment),
          .who = {.role = role, .index = job.environment.role_rank, .fingerprint = served.fingerprint()},
          .away_time = kMeetingTimeout};
}

Server::Options ServerOptions(const Job& job, const Served& served) {
  return {.self = SelfOf(job.environment),
          .interface = job.environment.interface,
          .reach = job.environment.store_address,
          .index = job.environment.role_rank,
          .workers = served.numbers.workers,
          .servers = served.numbers.servers,
          .fingerprint = served.fingerprint()};
}

Coordinator::Options CoordinatorOptions(const Job& job, const Served& served, const data::DatasetPlan& data) {
  const Config& config = job.config;
  return {.board = {.samples = data.training,
                    .batch_size = config.batch_size,
                    .epochs = config.epochs,
                    .synchronous = config.served->synchronous,
                    .parts = served.numbers.parts,
                    .workers = served.numbers.workers,
                    .max_gradient_age = config.served->max_gradient_age},
          .pieces = served.pieces,
          .floats = served.model.layout().total,
          .evaluator = served.numbers.evaluator,
          .validates = data.validation > 0,
          .tests = data.test > 0,
          .meeting_time = kMeetingTimeout};
}

int ExitCode(TrainingEnd end) {
  return end == TrainingEnd::kStopped ? contract::kExitCheckpointed : contract::kExitDone;
}

void LogPieces(const Served& served) {
  for (size_t i = 0; i < served.pieces.size(); ++i) {
    log::Info("parameter server " + std::to_string(i) + " has " +
              std::to_string(FloatsIn(served.pieces[i]) * static_cast<int64_t>(sizeof(float))) +
              " bytes of " +
              std::to_string(served.model.layout().total * static_cast<int64_t>(sizeof(float))));
  }
}

// As a checkpoint says it. Servers compute no passes; whether it can be had is the workers' to say.
Precision WorkersPrecision(const Config& config, const Backend& processor) {
  return config.soft_placement ? ChoosePrecision(config, processor, false) : config.precision;
}

int RunFirst(const Job& job, Served& served, Shard& shard, const data::DatasetPlan& data) {
  ServedState state(served.model.layout().total, served.optimizer->slots());
  std::unique_ptr<Checkpointing> checkpointing;
  if (job.config.checkpoint) {
    checkpointing = std::make_unique<Checkpointing>(
        Checkpointing::Options{
            .config = *job.config.checkpoint,
            .signature = MakeSignature(
                job.config, WorkersPrecision(job.config, served.backend),
                {.variables = served.model.variables(), .state = served.model.state_variables()},
                *served.optimizer, data.training),
            .run = job.environment.run,
            .generation = job.environment.generation,
            .timeout = kMeetingTimeout},
        nullptr, served.model, state, job.events);
  }
  FirstServer first({.config = job.config,
                     .environment = job.environment,
                     .model = served.model,
                     .optimizer = *served.optimizer,
                     .state = state,
                     .checkpointing = checkpointing.get(),
                     .events = job.events,
                     .training_samples = data.training});
  Coordinator::Options options = CoordinatorOptions(job, served, data);
  options.on_update = [&first](const Coordinator::Options::News& news) { first.Tell(news); };
  if (checkpointing != nullptr) {
    options.save_after = [&checkpointing](int64_t version, bool ends_epoch) {
      return checkpointing->Due(version, ends_epoch);
    };
  }
  Coordinator coordinator(std::move(options), shard);
  Server server(ServerOptions(job, served), shard, &coordinator);
  server.Publish(job.store, Clock::now() + kMeetingTimeout);
  LogPieces(served);
  job.stop.Handle([&coordinator] { coordinator.RequestStop(); });
  const TrainingEnd end = first.Run(coordinator);
  job.stop.Handle([] {});
  if (end == TrainingEnd::kDone) {
    const Result<int64_t> told = job.store.Add(kFinishedKey, 1, Clock::now() + std::chrono::seconds(5));
    if (!told.ok()) log::Warning("who comes late is not told that all is done: " + told.status().message());
  }
  return ExitCode(end);
}

int RunOther(const Job& job, Served& served, Shard& shard) {
  auto last = Clock::now();
  Server server(ServerOptions(job, served), shard, nullptr);
  server.Publish(job.store, Clock::now() + kMeetingTimeout);
  Follower follower(PeerOf(job, PeerRole::kServer, served), job.store, shard, [&](const Command& update) {
    const auto now = Clock::now();
    job.events.WriteStep({.step = update.version,
                          .total_steps = update.total_steps,
                          .epoch = update.epoch,
                          .samples = update.samples,
                          .loss = update.loss,
                          .learning_rate = served.optimizer->learning_rate(update.version),
                          .seconds = std::chrono::duration<double>(now - last).count()});
    last = now;
  });
  job.events.Write(contract::ReadyEvent{});
  job.stop.Handle([&follower] { follower.RequestStop(); });
  const Follower::End end = follower.Run();
  job.stop.Handle([] {});
  return ExitCode(end == Follower::End::kStopped ? TrainingEnd::kStopped : TrainingEnd::kDone);
}

int RunServer(const Job& job) {
  const data::DatasetPlan data = data::Source::Open(job.config.data)->plan();
  Devices devices({.threads = job.environment.threads});
  Served served(job, devices.At("CPU:0"), Served::ToLayOut(data.sample_shape()), data.training);
  const std::vector<Piece>& pieces = served.pieces[static_cast<size_t>(job.environment.role_rank)];
  // Every part may wait for the others, and every worker bring another.
  Shard shard({.floats = FloatsIn(pieces),
               .ranges = RangesOf(served.model.layout(), pieces),
               .most_staged = static_cast<size_t>(served.numbers.parts + 2 * served.numbers.workers)},
              *served.optimizer);
  return job.environment.role_rank == 0 ? RunFirst(job, served, shard, data) : RunOther(job, served, shard);
}

int RunWorker(const Job& job, PeerRole role) {
  // Of its own: who is started again could not attach to what those who left have shared.
  const SharedDataset dataset(job.config.data, {}, nullptr, kMeetingTimeout);
  const int64_t local_batch = NumbersOf(job).LocalBatch(job.config);
  const std::string& device = job.environment.device;
  Devices devices({.threads = job.environment.threads,
                   .memory = job.environment.memory,
                   .soft_placement = job.config.soft_placement});
  Backend& backend = devices.At(device);
  Backend& processor = devices.At("CPU:0");
  const Precision precision = ChoosePrecision(job.config, backend, job.environment.world.rank == 0);
  ModelOptions options{.sample = dataset.view().sample_shape(),
                       .max_local_batch = local_batch,
                       .pieces = job.config.gradient_accumulation,
                       .precision = precision};
  const bool on_gpu = &backend != &processor;
  const std::unique_ptr<trace::Recorder> trace = MakeTrace(job.environment);
  if (!on_gpu) options.trace = trace.get();
  if (on_gpu) {
    options.place = [&](const LayerConfig& layer) -> Backend& {
      return devices.For(layer, ComputeType(precision), device);
    };
  }
  Served served(job, processor, on_gpu ? Served::ToLayOut(options.sample) : options,
                dataset.view().training().count);
  std::optional<Model> own;
  if (on_gpu) {
    own.emplace(job.config.model, options, backend);
    const DeviceIdentity& gpu = dynamic_cast<DeviceBackend&>(backend).identity();
    log::Info("computes on " + gpu.name + " (" + gpu.uuid + "); the servers update on processors");
  }
  TellLayers({.layers = WithNames(job.config.model.layers),
              .sample = options.sample,
              .device_of =
                  [&](const LayerConfig& layer) {
                    return options.place ? devices.NameOf(options.place(layer)) : devices.NameOf(backend);
                  }},
             job.environment, job.events);
  Client client(PeerOf(job, role, served), job.store, served.pieces);
  WorkerLoop loop({.config = job.config,
                   .dataset = dataset.view(),
                   .backend = backend,
                   .model = own ? *own : served.model,
                   .served = served.model,
                   .optimizer = *served.optimizer,
                   .max_local_batch = local_batch,
                   .client = client,
                   .events = job.events,
                   .trace = trace.get()});
  job.stop.Handle([&loop] { loop.RequestStop(); });
  const TrainingEnd end = loop.Run();
  job.stop.Handle([] {});
  // (Workers come and go: there is no moment at which all would compare their clocks.)
  if (trace != nullptr) LeaveTrace(*trace, job.environment, nullptr);
  return ExitCode(end);
}

}  // namespace

int RunServed(const ServedParts& parts) {
  const ProcessEnvironment& environment = parts.environment;
  if (environment.role == "ps" && environment.device != "CPU:0" && !parts.config.soft_placement) {
    throw Unsupported(
        "strategy.type: ParameterServer updates variables on processors, and this server has a GPU; set "
        "devices.type: CPU for the role ps, or devices.softPlacement: true");
  }
  const std::unique_ptr<contract::Store> store = ConnectStore(environment);
  if (store == nullptr) throw Unsupported("strategy.type: ParameterServer is for several processes");
  const Job job{.config = parts.config,
                .environment = environment,
                .events = parts.events,
                .stop = parts.stop,
                .store = *store};
  if (environment.role == "ps") return RunServer(job);
  if (environment.role == "evaluator") return RunWorker(job, PeerRole::kEvaluator);
  if (environment.role == "worker") return RunWorker(job, PeerRole::kWorker);
  throw Unsupported("strategy.type: ParameterServer has no role " + environment.role +
                    "; worker, ps and evaluator it has");
}

}  // namespace lockstep::trainer
