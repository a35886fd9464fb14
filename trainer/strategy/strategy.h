#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/contract/store.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"

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
// MultiWorkerMirrored: that within each machine, and between machines an all-reduce over Gloo of each bucket
// as soon as it is complete, behind the rest of the backward pass. DeviceReplicated: any number of processes
// on GPUs; each has its own copy of everything, and gradients are summed from device to device.
namespace lockstep::trainer::strategy {

// Where this process stands. Ranks of a machine are consecutive: rank = group_rank * local_size + local_rank.
struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int group_rank = 0;  // which machine
  int group_size = 1;
};

enum class Kind { kOneDevice, kMirrored, kMultiWorkerMirrored };

// On processors: kAuto is shared memory within a machine and Gloo between machines; kSharedMemory is for one
// machine only; kGloo goes between all ranks, wherever they are, and is slower on one machine. On GPUs: kAuto
// is NCCL where each rank has a GPU of its own, kHierarchicalCopy where ranks of one machine share one; the
// last two are for one machine.
enum class CrossDeviceOps { kAuto, kSharedMemory, kGloo, kNccl, kHierarchicalCopy, kReductionToOneDevice };

struct Options {
  Kind kind = Kind::kMirrored;
  CrossDeviceOps ops = CrossDeviceOps::kAuto;
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
  bool shares_device = false;                          // the launcher put other ranks on the same GPU
  bool record_steps = true;                            // as graphs, on such a device
  collectives::InProcessSegments* segments = nullptr;  // ranks are threads of this process (tests)
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

// Collective: every rank makes the same calls in the same order, from one thread. Every wait for another rank
// ends after collective_timeout at the latest, within a second if that rank's process died on this machine,
// and throws CollectiveLost; the strategy is then dead, and the process is to end. RequestStop and Abort may
// be called from any thread, RequestStop from a signal handler too.
//
// One thread calls it, the model and the optimizer; both outlive it.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Meets the others, allocates the buffers and binds the model to them, with the initial parameters of
  // `seed` and zeroed slots. Ranks whose models differ find out here. Once, first. Throws RendezvousFailed
  // (naming who did not come), OutOfMemory, BadModel (ranks differ).
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

  // Totals over the ranks, the same on each; for evaluation, whose passes are the caller's (Model::Evaluate).
  virtual Totals Sum(const Totals& local) = 0;

  // All have come to here. To be called before the end, so that nobody leaves while others still need it.
  virtual void Finish() = 0;

  // What a checkpoint holds, in the layout's order, current while no step is in flight. Shared with other
  // ranks: read only. Valid after Setup. step(): updates done, those before a restored checkpoint included.
  virtual std::span<const float> parameters() const = 0;
  virtual std::span<const float> slot(int index) const = 0;
  virtual int64_t step() const = 0;

  // Replaces all of that. `fill` is called on one rank of those that share the buffers, and on every rank
  // that shares them with none; on devices on rank 0 alone, from which the others get it. It gets the
  // parameters and the Optimizer::slots() slots and may throw (the others then fail too). Afterwards machines
  // that each called it compare checksums: throws BadData when they differ.
  using Fill = std::function<void(std::span<float> parameters, std::span<const std::span<float>> slots)>;
  virtual void Restore(int64_t step, const Fill& fill) = 0;

  // Asks all ranks to stop after the step in which they hear of it (StepResult::stop). Async-signal-safe.
  void RequestStop() noexcept { stop_requested_.store(true); }
  // Makes this and the other ranks' calls throw, soon.
  virtual void Abort() noexcept = 0;

 protected:
  bool stop_requested() const { return stop_requested_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stop_requested_{false};
};

// Throws Unsupported for what the options contradict in (several machines with kMirrored or kSharedMemory,
// several ranks with kOneDevice …).
std::unique_ptr<Strategy> MakeStrategy(const Options& options);

}  // namespace lockstep::trainer::strategy
