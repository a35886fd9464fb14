#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// Several machines, each with one copy of the parameters that its ranks share. The flat buffers are cut into
// buckets at the borders of variables, the same everywhere. Of each bucket a rank owns a part. As a bucket is
// complete on all ranks of the machine, the owner's communication thread sums its part over them and
// all-reduces it with the ranks of the other machines that own the same part, behind the rest of the backward
// pass. When all has come back to all ranks of the machine, they update the parameters, each its parts. The
// order of buckets is the same everywhere, and so is every sum.
//
// With one rank a machine, this is also data parallelism over Gloo alone.
//
// Sharded, each machine has the optimizer's state of a share of every part alone: the owner gets the sum of
// that share (reduce-scatter), the parameters of the share are updated with it at once, and the machines
// exchange them (all-gather). That is as many bytes on the wire as the all-reduce, of which the second half
// comes after the backward pass.
//
// With copies of the shares, each machine gets the sums of the one before it too, and updates both shares, to
// the same bits. As without sharding nothing is updated before all sums are there, and here on all machines:
// so each of a machine and the one behind it can bring their share of the state as it was before the step
// until all can bring it as it is after it (docs/adr/0011-copies-of-shares.md).
class MultiWorkerMirrored final : public Replicated {
 public:
  using Replicated::Replicated;
  ~MultiWorkerMirrored() override;

  void UseAverage(bool average) override;
  void CollectSlots() override;
  void Restore(int64_t step, const Fill& fill) override;

 protected:
  // (Sharded, slots are collected on the first machine.)
  int ranks_with_all() const override { return sharded() ? local_size() : options_.world.size; }
  StepResult Step(const Batch& batch) override;
  void Prepare() override;
  bool MayUpdate(int local_rank) const override { return members_[local_rank].updates.load() != 0; }
  bool CanBeCompleted() const override;
  bool IsDecided() const override { return !copies() || shared_->decided.load() == turn_ + 1; }
  void BringState(Model& model, Committed* to) override;
  const float* GradientOf(size_t piece, float* to) override;
  double SquaredNormOfAll() const override;
  Report Reported() const override { return shared_->totals[turn_ % 2]; }

 private:
  using Clock = std::chrono::steady_clock;

  bool sharded() const { return options_.shard != Shard::kNone; }
  bool copies() const { return sharded() && options_.copy_shards; }
  // Whether a bucket is updated, and its parameters gathered, as soon as it is summed.
  bool updates_early() const { return sharded() && !copies() && !optimizer_->clips_by_norm(); }
  int machine_before() const {
    const World& world = options_.world;
    return (world.group_rank + world.group_size - 1) % world.group_size;
  }
  collectives::Range MyPart(size_t bucket) const;
  // What `machine` updates of a part.
  collectives::Range ShareOf(const collectives::Range& part, int machine) const;
  // What this machine has of a part, ascending: its share, and the one of which it has the copy.
  std::vector<collectives::Range> SharesOf(const collectives::Range& part) const;
  void FollowUp(size_t bucket);
  void GatherParameters(size_t bucket);
  // Of this rank's parts what other machines update.
  void DiscardSlotsOfOthers();
  void DiscardGradients(size_t bucket, bool all);
  void DiscardBeside(const collectives::Range& part, const float* flat);
  void Announce(size_t end);
  bool UpdateSome();
  void CutIntoPieces();
  void UpdateAll(const std::string& operation);
  void AwaitSums(const std::string& operation);
  void AwaitMachines(const std::string& operation);
  void SumNorms(const std::string& operation);
  double SquaredNormHere() const;
  void Communicate();
  void CommunicateStep();
  void ThrowIfThreadFailed();

  std::vector<collectives::Range> buckets_;
  std::vector<int> owners_;        // local ranks, by piece of journal_
  bool collected_ = false;         // slots are whole on this machine
  std::span<double> norms_;        // shared by the machine: of each bucket, of each local rank's part, Σ g²
  double* norm_of_all_ = nullptr;  // beside them: over all machines
  collectives::SharedSegment norms_segment_;
  Clock::duration updating_{};

  // The communication thread works on one step at a time, from the main thread's Start to its own end. What
  // it reads of the strategy (turn_, step_) does not change meanwhile.
  std::atomic<size_t> reduced_{0};  // buckets of this step whose part has the sum over all ranks
  std::atomic<size_t> updated_{
      0};                          // buckets of this step whose part the main thread has updated, or measured
  std::atomic<bool> ended_{true};  // the thread is through with the step, or has failed
  std::mutex mutex_;               // guards the three below
  std::condition_variable changed_;
  bool begin_ = false, quit_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lockstep::trainer::strategy
