#include "trainer/strategy/strategy.h"

#include <algorithm>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/strategy/central.h"
#include "trainer/strategy/device_pipeline.h"
#include "trainer/strategy/device_replicated.h"
#include "trainer/strategy/host_ops.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/multi_worker_mirrored.h"
#include "trainer/strategy/one_device.h"
#include "trainer/strategy/pipeline.h"

namespace lockstep::trainer::strategy {
namespace {

constexpr char kNeedCommunicators[] = "several ranks on GPUs need communicators";

void Check(bool right, const std::string& what) {
  if (!right) throw Unsupported("strategy: " + what);
}

void CheckWorld(const Options& options) {
  const World& w = options.world;
  // Machines that have lost a GPU have fewer ranks than others. On processors all are alike: local ranks of
  // the same number sum for their machines.
  const bool alike = options.device == nullptr;
  const bool fits = w.size == w.local_size * w.group_size || (!alike && w.size >= w.local_size);
  Check(w.size >= 1 && w.local_size >= 1 && w.group_size >= 1 && fits,
        "a world of " + std::to_string(w.size) + " ranks is not " + std::to_string(w.group_size) +
            " machines of " + std::to_string(w.local_size));
  const bool placed = w.rank == w.group_rank * w.local_size + w.local_rank ||
                      (!alike && w.rank >= w.local_rank && w.rank < w.size);
  Check(w.local_rank >= 0 && w.local_rank < w.local_size && w.group_rank >= 0 &&
            w.group_rank < w.group_size && placed,
        "rank " + std::to_string(w.rank) + " is not local rank " + std::to_string(w.local_rank) +
            " of machine " + std::to_string(w.group_rank));
  Check(w.size == 1 || options.store != nullptr, "several ranks need a store to meet in");
}

std::unique_ptr<Strategy> MakePipeline(const Options& options) {
  Check(options.world.group_size == 1, "Pipeline is for one machine in this version, and there are " +
                                           std::to_string(options.world.group_size));
  Check(options.pipeline.count() > 0, "a pipeline without stages");
  PlaceInPipeline(0, options.world.size, options.pipeline.count());
  const bool alone = options.world.size == 1;
  if (options.device == nullptr) {
    if (alone) return std::make_unique<OneDevice>(options);
    return std::make_unique<Pipeline>(options);
  }
  if (alone) return std::make_unique<DeviceReplicated>(options);
  Check(options.communicators != nullptr, kNeedCommunicators);
  return std::make_unique<DevicePipeline>(options);
}

}  // namespace

ModelBatch ForModel(const Batch& batch, uint64_t seed, ReplicaSum* replicas) {
  return {.inputs = batch.inputs,
          .labels = batch.labels,
          .n = batch.local_samples,
          .scale = 1.0f / static_cast<float>(batch.global_samples),
          .keys = {.seed = seed, .epoch = batch.epoch, .samples = batch.samples},
          .replicas = replicas};
}

Totals Strategy::Evaluate(Model& model, const void* inputs, const void* labels, int64_t n) {
  const LossResult result = model.Evaluate(inputs, labels, n);
  return {result.loss_sum, result.correct, n};
}

Shares Strategy::ShareOut(const Model& model, int ranks) const {
  return {.by_rank = DivideEvenly(Variables(model), StateVariables(model), std::min(ranks, ranks_with_all())),
          .rank = world().rank};
}

void Strategy::Export(Model& model, const Shares& shares, WholeState* to) {
  CollectSlots();
  if (to == nullptr) return;
  const Share& mine = shares.mine();
  const size_t size = FloatsOf(model.variables(), mine.variables);
  const auto canonical = [&](std::span<const float> flat, std::vector<float>* vector) {
    vector->resize(size);
    model.ExportVariables(mine.variables, flat.data(), vector->data());
  };
  canonical(parameters(), &to->parameters);
  for (size_t i = 0; i < to->slots.size(); ++i) canonical(slot(static_cast<int>(i)), &to->slots[i]);
  to->state.resize(FloatsOf(model.state_variables(), mine.state));
  model.ExportState(mine.state, to->state.data());
}

void Strategy::Import(Model& model, int64_t step, const WholeState& from) {
  Restore(step, [&](std::span<float> parameters, std::span<const std::span<float>> slots) {
    model.ImportCanonical(from.parameters, parameters.data());
    for (size_t i = 0; i < slots.size(); ++i) model.ImportCanonical(from.slots[i], slots[i].data());
  });
  model.ImportState(from.state);
}

std::vector<Committed> Strategy::TakeCommitted(Model& /*model*/) {
  throw Unsupported("strategy: a process that is left has no whole state of its own here");
}

void Strategy::Broadcast(std::span<std::byte> /*data*/, int /*root*/) {
  throw Unsupported("strategy: it hands on no state in memory");
}

int Strategy::AverageSlotOf(const Optimizer& optimizer) {
  if (optimizer.average_slot() >= 0) return optimizer.average_slot();
  throw Unsupported("strategy: the optimizer keeps no moving average of the parameters");
}

std::unique_ptr<Strategy> MakeStrategy(const Options& given) {
  Options options = given;
  World& world = options.world;
  CheckWorld(options);
  if (world.size == 1) options.shard = Shard::kNone;
  if (options.kind == Kind::kPipeline) return MakePipeline(options);
  const std::string machines = std::to_string(world.group_size) + " machines";
  Check(options.kind != Kind::kOneDevice || world.size == 1, "OneDevice is for one process, and there are " +
                                                                 std::to_string(world.size) +
                                                                 "; Mirrored would be right");
  Check(options.kind != Kind::kMirrored || world.group_size == 1,
        "Mirrored is for one machine, and there are " + machines + "; MultiWorkerMirrored would be right");
  Check(options.kind != Kind::kCentralStorage || world.group_size == 1,
        "CentralStorage is for one machine, and there are " + machines + "; ParameterServer would be right");
  if (options.device != nullptr) {
    Check(world.size == 1 || options.communicators != nullptr, kNeedCommunicators);
    return std::make_unique<DeviceReplicated>(options);
  }
  const HostOpsChoice choice = ChooseHostOps(options);
  options.ops = choice.ops;
  if (world.size == 1) return std::make_unique<OneDevice>(options);
  if (world.rank == 0) {
    const bool mixed = options.ops == CrossDeviceOps::kAuto;
    log::Info("gradients: " + std::string(mixed ? "SharedMemory and Gloo" : OpsName(options.ops)) +
              ", since " + choice.why);
  }
  if (options.shard == Shard::kOptimizer && options.ops != CrossDeviceOps::kAuto &&
      options.ops != CrossDeviceOps::kGloo) {
    if (world.rank == 0) log::Info("shard: the ranks share one copy of the optimizer's state");
    options.shard = Shard::kNone;
  }
  switch (options.ops) {
    case CrossDeviceOps::kSharedMemory:
      return std::make_unique<Mirrored>(options);
    case CrossDeviceOps::kHierarchicalCopy:
    case CrossDeviceOps::kReductionToOneDevice:
      return std::make_unique<Central>(options);
    case CrossDeviceOps::kGloo:
      // Each rank as if on a machine of its own.
      world = {.rank = world.rank, .size = world.size, .group_rank = world.rank, .group_size = world.size};
      break;
    case CrossDeviceOps::kAuto:
    case CrossDeviceOps::kNccl:
      break;
  }
  return std::make_unique<MultiWorkerMirrored>(options);
}

}  // namespace lockstep::trainer::strategy
