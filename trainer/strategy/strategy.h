#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/contract/store.h"
#include "trainer/collectives/communicator.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/pipeline_plan.h"
#include "trainer/strategy/shares.h"
#include "trainer/trace/recorder.h"

namespace lockstep::trainer {
class DeviceBackend;
namespace collectives {
struct CudaCommunicators;
class InProcessSegments;
}  // namespace collectives
}  // namespace lockstep::trainer

// strategy/: how the processes of a job train one model together. A strategy owns the flat buffers
// (parameters, gradients, optimizer state), decides who sums and updates what and when, and agrees with the
// others on what all must agree on: the loss, the step at which to stop, the parameters. What carries the
// bytes is in collectives/; what computes is in model/ and optimizer/. The train loop calls it and knows
// nothing of other ranks but their number.
//
// OneDevice: one process. Mirrored: the processes of one machine share one copy of the parameters and of the
// optimizer's state in shared memory; each has its own gradients there, and as a bucket of them is complete
// on all ranks, whoever is free sums it in rank order and updates the parameters with it.
// CentralStorage: the same, but one rank alone sums and updates. MultiWorkerMirrored: as Mirrored within each
// machine, and between machines an all-reduce over Gloo of each bucket as soon as it is complete, behind the
// rest of the backward pass. DeviceReplicated: any number of processes on GPUs; each has its own copy of
// everything, and gradients are summed from device to device. Pipeline: each process has a few layers; what
// is between them goes from one to the next in shared memory. DevicePipeline: the same on GPUs, from device
// to device.
namespace lockstep::trainer::strategy {

// Where this process stands. Ranks of a machine are consecutive; where machines have equally many, which they
// have on processors, rank = group_rank * local_size + local_rank.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int group_rank = 0;  // which machine
  int group_size = 1;
};

enum class Kind { kOneDevice, kMirrored, kMultiWorkerMirrored, kCentralStorage, kPipeline };

// On processors: kAuto is shared memory within a machine and Gloo between machines; kSharedMemory is for one
// machine only; kGloo goes between all ranks, wherever they are, and is slower on one machine. On GPUs: kAuto
// is NCCL where each rank has a GPU of its own, kHierarchicalCopy where ranks of one machine share one. The
// last two are for one machine, of either kind.
enum class CrossDeviceOps { kAuto, kSharedMemory, kGloo, kNccl, kHierarchicalCopy, kReductionToOneDevice };

// What is divided over the ranks instead of being whole on each, after ZeRO (Rajbhandari et al., "ZeRO:
// Memory Optimizations Toward Training Trillion Parameter Models", 2020): kOptimizer the optimizer's state
// (its stage 1), kGradients the gradients too, once they are summed (stage 2).
enum class Shard { kNone, kOptimizer, kGradients };

struct Options {
  Kind kind = Kind::kMirrored;
  CrossDeviceOps ops = CrossDeviceOps::kAuto;
  Shard shard = Shard::kNone;
  // With `shard`: each machine has its neighbour's share of what is divided too, so that nothing of it is
  // lost with a machine (keeps_committed). Twice the optimizer's state, and an exchange more in a step.
  bool copy_shards = false;
  PipelineOptions pipeline;  // kPipeline; the model is then this rank's stage
  World world;
  contract::Store* store = nullptr;  // needed when there are several ranks; used during Setup only
  int threads = 1;                   // that this rank computes with
  // Several machines: which of this one's addresses the others reach. The interface's, if given, else the one
  // from which `reach` (HOST[:PORT], the store's address) is reached.
  std::string interface;
  std::string reach;
  std::chrono::milliseconds setup_timeout{60'000};
  std::chrono::milliseconds collective_timeout{60'000};  // of each wait for the others
  // What the model computes on, if that is a device whose work runs behind the host; and how such devices
  // exchange gradients, needed when there are several ranks. Both outlive the strategy.
  DeviceBackend* device = nullptr;
  const collectives::CudaCommunicators* communicators = nullptr;
  bool soft_placement = false;                         // NCCL on processors: as if nothing had been asked for
  bool shares_device = false;                          // the launcher put other ranks on the same GPU
  bool record_steps = true;                            // as graphs, on such a device
  collectives::InProcessSegments* segments = nullptr;  // ranks are threads of this process (tests)
  // Gets what a step is made of beside the model's passes, and on a device these too. Null: nobody asked.
  // Outlives the strategy.
  trace::Recorder* trace = nullptr;
};

// Which part of a global batch a rank takes: `index` of `count`. Several ranks may take the same.
struct DataShare {
  int index = 0;
  int count = 1;
};

// This rank's share of a global batch. What the pointers mean is Model::TrainStep's. On a device they
// alternate between a few places, so what was recorded of a step belongs to the places it was recorded with;
// and since all ranks must record the same, a rank's share and its place follow from the step's number and
// its global samples.
struct Batch {
  const void* inputs = nullptr;
  const void* labels = nullptr;
  int64_t local_samples = 0;   // 0 is fine: the rank takes part with nothing
  int64_t global_samples = 0;  // over all ranks, > 0; the same on every rank
  // What random numbers are keyed by, where the model draws any: the local samples' numbers, which stay until
  // the step is started.
  int64_t epoch = 0;
  std::span<const uint32_t> samples;
};

// The same on every rank, bit for bit, but for the last two.
struct StepResult {
  double loss =
      0;  // mean over the global batch, before the update, with the L2 penalty (as Keras reports it)
  int64_t correct = 0;  // over all ranks
  int64_t samples = 0;  // over all ranks
  bool stop = false;  // some rank had asked to stop before it came to the end of this step: all stop after it
  double collective_seconds =
      0;  // that this rank waited for others or moved gradients after its own backward pass
  int64_t collective_bytes = 0;  // this rank's all-reduced gradients; 0 with one rank
};

// Sums over samples; also over ranks.
struct Totals {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
};

// What a checkpoint holds, of the whole model or of a share of it, in canonical order
// (Model::ExportCanonical).
struct WholeState {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  std::vector<float> state;  // what the layers keep beside
};

// One of the parts that a state is divided into, of parameters and slots alike: these stretches of the flat
// buffers (Model::layout).
struct StatePart {
  int number = 0;
  std::vector<collectives::Range> stretches;
};

// What a process has when others are lost: the state after a step.
struct Committed {
  int64_t step = 0;  // updates done, as Strategy::step()
  // Whole; or, where there are parts, instead of parameters and of each slot what is in these, one stretch
  // after the other.
  WholeState state;
  std::vector<StatePart> parts;
  int division = 0;  // how many parts there are of the whole; 0: it is not divided
  // Of the step that was under way, if it counts: what FinishStep would have returned.
  std::optional<StepResult> finished;
};

// What checkpoints are made of and restored to.
class TrainingState {
 public:
  virtual ~TrainingState() = default;

  // Divides the state among about so many ranks that then bring it at the same time; of 1 it is rank 0. The
  // same on every rank.
  virtual Shares ShareOut(const Model& model, int ranks) const = 0;
  // Collective: what this rank is to bring. `to` has as many slots as the optimizer, and is null on a rank
  // that brings nothing. No rank may change the state before all have returned and taken part in the next
  // step.
  virtual void Export(Model& model, const Shares& shares, WholeState* to) = 0;
  // Replaces all of it. `from` is the same on every rank.
  virtual void Import(Model& model, int64_t step, const WholeState& from) = 0;

  // What sums over the replicas, between steps; null where there is one replica only, or nothing that sums.
  virtual ReplicaSum* replica_sum() { return nullptr; }
};

// Collective: every rank makes the same calls in the same order, from one thread. Every wait for another rank
// ends after collective_timeout at the latest, within a second if that rank's process died on this machine,
// and throws CollectiveLost; the strategy is then dead, and the process is to end. RequestStop and Abort may
// be called from any thread, RequestStop from a signal handler too.
//
// One thread calls it, the model and the optimizer; both outlive it.
class Strategy : public TrainingState {
 public:
  // Meets the others, allocates the buffers and binds the model to them, with the initial parameters of
  // `seed` and zeroed slots. Ranks whose models differ find out here. Once, first. Throws RendezvousFailed
  // (naming who did not come), OutOfMemory, BadModel (ranks differ), Unsupported (the model sums over the
  // replicas, and this strategy does not).
  virtual void Setup(Model& model, Optimizer& optimizer, uint64_t seed) = 0;

  // One step of the whole job: gradients of the local samples, their sum over the ranks, the update. On a
  // device the work is only enqueued; the batch must stay as the backend demands of what is enqueued. At most
  // max_in_flight() steps may be started and not finished.
  virtual void StartStep(const Batch& batch) = 0;
  // The result of the oldest step that is not finished; waits for it.
  virtual StepResult FinishStep() = 0;
  // The same on every rank.
  virtual int max_in_flight() const { return 1; }
  // A step alone.
  StepResult TrainStep(const Batch& batch) {
    StartStep(batch);
    return FinishStep();
  }

  // Which part of each global batch, and of an evaluation, this rank is to be given.
  virtual DataShare data_share() const = 0;

  // Loss and correct answers of n samples of this rank's share, between steps; no more than the share of a
  // batch. Ranks of the same share call it with the same, and one of them gets the result, the others zeros.
  // `model` is that of Setup, here and below.
  virtual Totals Evaluate(Model& model, const void* inputs, const void* labels, int64_t n);
  // Model::L2Penalty of the whole model, on every rank.
  virtual double L2Penalty(Model& model) { return model.L2Penalty(); }
  // Totals over the ranks, the same on each.
  virtual Totals Sum(const Totals& local) = 0;

  // From now on the model reads the parameters' moving average (Optimizer::average_slot) instead of them, or
  // again them; for evaluation. While no step is in flight; collective. Throws Unsupported without an
  // average.
  virtual void UseAverage(bool average) = 0;

  // All have come to here. To be called before the end, so that nobody leaves while others still need it.
  virtual void Finish() = 0;

  // What a checkpoint holds, in the layout's order, current while no step is in flight. Shared with other
  // ranks: read only. Valid after Setup. step(): updates done, those before a restored checkpoint included.
  // With Options::shard a slot is whole on rank 0 alone, from CollectSlots to the next step.
  virtual std::span<const float> parameters() const = 0;
  virtual std::span<const float> slot(int index) const = 0;
  virtual int64_t step() const = 0;
  // Collective, while no step is in flight.
  virtual void CollectSlots() {}

  // Replaces all of that. `fill` is called on one rank of those that share the buffers, and on every rank
  // that shares them with none; on devices on rank 0 alone, from which the others get it. It gets the
  // parameters and the Optimizer::slots() slots and may throw (the others then fail too). Afterwards machines
  // that each called it compare checksums: throws BadData when they differ.
  using Fill = std::function<void(std::span<float> parameters, std::span<const std::span<float>> slots)>;
  virtual void Restore(int64_t step, const Fill& fill) = 0;

  // The whole model's, on every rank; after Setup.
  virtual std::vector<NamedShape> Variables(const Model& model) const { return model.variables(); }
  virtual std::vector<NamedShape> StateVariables(const Model& model) const { return model.state_variables(); }
  // Collective, after Setup and while no step is in flight.
  Shares ShareOut(const Model& model, int ranks) const override;
  void Export(Model& model, const Shares& shares, WholeState* to) override;
  void Import(Model& model, int64_t step, const WholeState& from) override;

  // Whether those that live have the whole state of a committed step at any moment, if one machine is lost:
  // the two below are then there.
  virtual bool keeps_committed() const { return false; }
  // After Setup, instead of all further calls, when one has thrown CollectiveLost; at most one step in
  // flight. No rank needs to take part: others may be dead, or do the same. A step is committed when all
  // gradients are there, and what of its updates is missing is done in what is returned; every other is
  // dropped. On several machines this one may thus have a step that others do not have. Where each has a part
  // of the state alone, and this one cannot know whether all come to the end of the step, it has both: the
  // state before and after it. Throws CollectiveLost when a rank of this machine that may be at updating
  // neither ends nor comes to rest within 3 s. By step, ascending.
  virtual std::vector<Committed> TakeCommitted(Model& model);
  // Collective, while no step is in flight: `root`'s data on every rank.
  virtual void Broadcast(std::span<std::byte> data, int root);

  // Asks all ranks to stop after the step in which they hear of it (StepResult::stop). Async-signal-safe.
  void RequestStop() noexcept { stop_requested_.store(true); }
  // Makes this and the other ranks' calls throw, soon.
  virtual void Abort() noexcept = 0;

 protected:
  virtual const World& world() const = 0;
  // How many ranks, from 0 on, have the whole state when it is exported.
  virtual int ranks_with_all() const { return world().size; }
  bool stop_requested() const { return stop_requested_.load(std::memory_order_relaxed); }
  // Throws Unsupported where there is none.
  static int AverageSlotOf(const Optimizer& optimizer);

 private:
  std::atomic<bool> stop_requested_{false};
};

// The batch as the model takes it; `replicas` may be null.
ModelBatch ForModel(const Batch& batch, uint64_t seed, ReplicaSum* replicas);

// Throws Unsupported for what the options contradict in (several machines with kMirrored or kSharedMemory,
// several ranks with kOneDevice …).
std::unique_ptr<Strategy> MakeStrategy(const Options& options);

}  // namespace lockstep::trainer::strategy
