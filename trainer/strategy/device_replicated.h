#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/device_rates.h"
#include "trainer/strategy/device_trace.h"
#include "trainer/strategy/device_watch.h"
#include "trainer/strategy/shared_sum.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// Ranks on devices whose work runs behind the host: one, several on one machine, or several machines. Each
// rank has a copy of its own of everything in its device's memory. Of each bucket of gradients the sum over
// the ranks runs on the communication stream behind the rest of the backward pass, and every rank updates all
// parameters with what came back. All start from rank 0's parameters and apply the same sums in the same way,
// so they stay the same bit for bit.
//
// Sharded, a rank has the optimizer's state of a share of every bucket alone: it gets the sum of that share
// (reduce-scatter), updates the share's parameters, and all get them from it (all-gather). With the gradients
// divided too, those of a bucket are in one of two places by turns: they are scattered while the pass is at
// the next one, the pass comes to the one after that when they are, and the shares' sums lie apart
// (device_shards.cc).
//
// A step is recorded as a graph where all of it can be, after a first ordinary one of its size; one step in
// some is run as an ordinary one for its time to be taken apart. For a trace all are ordinary ones.
class DeviceReplicated final : public Strategy {
 public:
  explicit DeviceReplicated(const Options& options);
  ~DeviceReplicated() override;

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override;
  StepResult FinishStep() override;
  int max_in_flight() const override { return kInFlight; }
  DataShare data_share() const override { return {options_.world.rank, options_.world.size}; }
  Totals Sum(const Totals& local) override;
  ReplicaSum* replica_sum() override { return replica_sum_.get(); }
  void UseAverage(bool average) override;
  void Finish() override;
  void CollectSlots() override;
  std::span<const float> parameters() const override { return Downloaded(0); }
  std::span<const float> slot(int index) const override;
  int64_t step() const override { return step_; }
  void Restore(int64_t step, const Fill& fill) override;
  void Abort() noexcept override;

 protected:
  const World& world() const override { return options_.world; }
  int ranks_with_all() const override { return sharded() ? 1 : options_.world.size; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kInFlight = 3;

  // The events around a wait of the compute stream for another; with timing.
  struct Wait {
    std::unique_ptr<DeviceEvent> before, after;
  };
  struct Bucket {
    collectives::Range range;
    collectives::Range share;    // of it, what this rank updates: all of it, unless sharded
    float* gradients = nullptr;  // the range's
    float* sums = nullptr;       // the share's, over all ranks
    size_t slots = 0;            // where the share begins in each slot
    // What is in the share, counted from its beginning.
    std::vector<UpdateRange> ranges;
    std::vector<RoundedCopy> rounded;
    std::unique_ptr<DeviceEvent> ready;    // on this rank
    std::unique_ptr<DeviceEvent> reduced;  // over all
    std::unique_ptr<DeviceEvent> updated;  // this rank's share
    Wait wait;                             // for `reduced`
  };
  // In pinned memory: what goes to the device in front of a step and comes back behind it; then a sum of
  // squares for each variable with an L2 penalty.
  struct Landing {
    collectives::DeviceReport mine;   // samples and stop
    collectives::DeviceReport total;  // over the ranks
    LossSums sums;                    // of this rank
  };
  // A step that was started.
  struct Flight {
    Landing* landing = nullptr;
    double* squares = nullptr;
    std::unique_ptr<DeviceEvent> done;
    int64_t global_samples = 0;
    bool measured = false;
  };
  // What a graph was recorded of.
  using Recorded = std::tuple<const void*, const void*, int64_t, int64_t>;  // a Batch's

  void Connect();
  void Divide();
  void ReportShares() const;
  void Allocate();
  void PlaceBuckets();
  void NoteContents(Bucket* bucket) const;
  void MakeEvents();
  void BroadcastState();
  void Run(const Batch& batch, bool measured);
  void Enqueue(const Batch& batch, bool measured);
  void StartTurns();
  void TakeTurn(size_t bucket, bool measured);
  void EnqueuePasses(const Batch& batch, const Model::GradientsReady& ready);
  void EnqueueSum(const Bucket& bucket);
  int64_t NumberOf(const Bucket& bucket) const { return &bucket == &whole_ ? -1 : &bucket - buckets_.data(); }
  void SumOverRanks(bool measured);
  void WaitFor(DeviceEvent& event, const Wait& wait, bool measured);
  void GatherParameters(bool measured);
  void GatherSlot(int index, const Bucket& bucket, float* to);
  void SpreadSlots();
  void ReadAverage(bool average);
  void Bind(float* parameters);
  void UpdateClipped();
  void UpdateClippedShares();
  void Update(const Bucket& bucket);
  double TakeExposed();
  std::span<const float> Downloaded(int index) const;
  template <typename Work>
  void InStep(int64_t step, Work&& work);

  bool sharded() const { return options_.shard != Shard::kNone; }
  float* SlotOf(int index) const {
    return state_.as<float>() + stride_ + static_cast<size_t>(index) * slot_stride_;
  }
  size_t total() const { return static_cast<size_t>(model_->layout().total); }
  bool alone() const { return options_.world.size == 1; }
  int64_t steps_started() const { return step_ + static_cast<int64_t>(started_ - finished_); }
  collectives::Deadline deadline() const { return Clock::now() + options_.collective_timeout; }

  Options options_;
  DeviceBackend& device_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  uint64_t seed_ = 0;
  std::vector<Variable> penalised_;  // variables with an L2 penalty

  std::unique_ptr<collectives::LocalGroup> group_;
  std::unique_ptr<SharedSum> replica_sum_;  // where model and job need it
  std::unique_ptr<DeviceWatch> watch_;
  std::unique_ptr<DeviceTrace> trace_;  // null: nobody asked

  // Device memory. State: parameters and slots, one behind the other. Exchange: gradients, the sums of this
  // rank's shares where they lie apart, and the reports.
  Buffer state_, exchange_, small_, pinned_;
  size_t stride_ = 0;       // floats of the parameters
  size_t slot_stride_ = 0;  // of a slot
  // Floats of the gradients: in turns, those of the first place, and then of both.
  size_t first_turn_ = 0, gradient_floats_ = 0;
  bool in_turns_ = false;  // see Shard::kGradients
  float* gradients_ = nullptr;
  collectives::DeviceReport* report_ = nullptr;
  collectives::DeviceReport* norm_ = nullptr;  // as its loss: Σ g² over this rank's shares, then over all
  std::unique_ptr<DeviceRates> rates_;
  double* squares_ = nullptr;
  double* squared_norm_ = nullptr;  // of the whole gradient, where it is clipped by that
  Landing* sum_landing_ = nullptr;  // of Sum
  std::unique_ptr<collectives::DeviceCommunicator> communicator_;  // null when alone
  std::string why_these_ops_;

  Bucket whole_;  // without events
  std::vector<Bucket> buckets_;
  std::unique_ptr<DeviceEvent> reported_, report_reduced_, gathered_, idle_;
  Wait report_wait_, gather_wait_;
  std::array<Flight, kInFlight> flights_;
  std::map<Recorded, std::unique_ptr<DeviceGraph>> graphs_;
  std::map<std::pair<int64_t, int64_t>, int> ordinary_;  // runs, by local and global samples
  bool recordable_ = false;

  uint64_t started_ = 0, finished_ = 0;  // steps, since Setup
  int64_t step_ = 0;                     // finished, those before a restored checkpoint included
  double exposed_ = 0;                   // of the last step that was measured
  bool ended_ = false;                   // by Finish
  // Of parameters and slots; and the step they are of, -1 for none.
  mutable std::vector<std::vector<float>> host_;
  mutable std::vector<int64_t> host_step_;
};

}  // namespace lockstep::trainer::strategy
