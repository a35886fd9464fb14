#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/journal.h"
#include "trainer/strategy/shared_sum.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// What all strategies share in which every machine has one whole copy of the parameters and of the
// optimizer's state: meeting the others, the buffers, sums of a few numbers, restoring. How a step is done is
// the derived class's.
//
// A machine's copy is that of one step or of the next, whoever is killed when: nothing is updated before all
// gradients are complete and will stay, and then each piece so that it can be done again (Journal).
class Replicated : public Strategy {
 public:
  explicit Replicated(const Options& options) : options_(options) {}

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override;
  StepResult FinishStep() override { return result_; }
  DataShare data_share() const override { return {options_.world.rank, options_.world.size}; }
  Totals Sum(const Totals& local) override;
  void UseAverage(bool average) override;
  void Finish() override;
  std::span<const float> parameters() const override { return {parameters_, total()}; }
  std::span<const float> slot(int index) const override {
    return {slots_[static_cast<size_t>(index)], total()};
  }
  int64_t step() const override { return step_; }
  void Restore(int64_t step, const Fill& fill) override;
  ReplicaSum* replica_sum() override { return replica_sum_.get(); }
  // (Sharded without copies, nobody has another machine's share.)
  bool keeps_committed() const override { return options_.shard == Shard::kNone || options_.copy_shards; }
  std::vector<Committed> TakeCommitted(Model& model) override;
  void Broadcast(std::span<std::byte> data, int root) override;
  void Abort() noexcept override;

 protected:
  const World& world() const override { return options_.world; }

  using Look = collectives::LocalGroup::Look;

  // What a rank tells the others at the end of a step or of an evaluation.
  struct Report {
    double loss_sum = 0;
    double correct = 0;  // exact: counts are far below 2^53
    double samples = 0;
    double stop = 0;  // ranks that were asked to stop
    Report& operator+=(const Report& other);
  };
  // One local rank in shared memory, on cache lines of its own. Two reports by turns: who is a step ahead
  // does not overwrite what another still reads.
  struct alignas(64) Member {
    std::atomic<uint64_t> announced;            // see Position
    std::atomic<uint64_t> summed;               // steps of whose sums this rank has its part
    std::atomic<uint64_t> updated;              // steps whose updates this rank has done its part of
    std::atomic<uint32_t> updates;              // whether this rank is at it, where that is told
    std::atomic<uint64_t> model;                // fingerprint
    alignas(64) std::array<Report, 2> reports;  // of steps
    alignas(64) std::array<Report, 2> sums;     // of Sum
  };
  struct alignas(64) Shared {
    std::atomic<uint64_t> chunks_done;         // over all steps
    std::atomic<uint64_t> decided;             // steps that all machines will come to the end of
    double squared_norm;                       // of the whole gradient, where one rank has it
    alignas(64) std::array<Report, 2> totals;  // of steps, over all machines
    alignas(64) std::array<Report, 2> sums;    // of Sum
  };

  virtual StepResult Step(const Batch& batch) = 0;
  // Called at the end of Setup.
  virtual void Prepare() {}

  // What TakeCommitted asks; but for the first, while no rank works on what they share.
  //
  // Whether a local rank may have begun to update when it did not know yet that the group has failed; asked
  // while they still work.
  virtual bool MayUpdate(int local_rank) const {
    return members_[local_rank].announced.load() >= Position(turn_, total());
  }
  // Whether this turn's step can be completed from what is in shared memory.
  virtual bool CanBeCompleted() const { return false; }
  // Then: whether that is all it takes for all machines to have it, so that none goes back behind it.
  virtual bool IsDecided() const { return true; }
  // What this machine has of the state, `state.state` excepted.
  virtual void BringState(Model& model, Committed* to);
  // Then: where the whole gradient of a piece of journal_ is, its first element first; `to` has room for it.
  virtual const float* GradientOf(size_t /*piece*/, float* /*to*/) { return nullptr; }
  virtual double SquaredNormOfAll() const { return squared_norm_; }

  // What all ranks reported in this turn's step.
  virtual Report Reported() const;

  size_t total() const { return static_cast<size_t>(model_->layout().total); }
  collectives::Deadline deadline() const {
    return std::chrono::steady_clock::now() + options_.collective_timeout;
  }
  int local_size() const { return options_.world.local_size; }
  int local_rank() const { return options_.world.local_rank; }
  bool leads() const { return local_rank() == 0; }

  // Gradients up to `end` of step `turn` (from 0, since Setup), as one number that only grows.
  uint64_t Position(uint64_t turn, size_t end) const { return turn * (total() + 1) + end; }
  // How far all local ranks have come in step `turn`: gradients below this offset are complete on each.
  size_t Announced(uint64_t turn) const;

  // Of the local ranks, in order, into this rank's own buffer. `from`: where each rank's are.
  void SumGradients(std::span<float* const> from, size_t begin, size_t end);
  // Instead into `to`, which has room for them alone.
  void SumInto(std::span<float* const> from, size_t begin, size_t end, float* to);
  // Where the optimizer clips by the norm of the whole gradient: its penalties' part is added to the
  // gradients in this rank's own buffer, and Σ g² returned. No range is updated before all have gone through
  // this, on all ranks, and squared_norm_ is the sum over all.
  double SquaredNorm(size_t begin, size_t end);
  // With the gradients in this rank's own buffer; and the parameters out for all to read.
  void Update(size_t begin, size_t end);
  // A piece of journal_, so that a death on the way does no harm; `gradient` is the piece's. Whoever calls it
  // has looked, since it came to know that the step is committed, whether the group has failed
  // (LocalGroup::ThrowIfFailed, Wait): who then finds it failed knows that nobody begins to update any more.
  void UpdatePiece(size_t piece, const float* gradient);
  // This rank has done its part of this turn's updates; waits for the others of the machine.
  void AwaitUpdates(const std::string& operation);
  StepResult Finished(const Report& totals);
  std::string StepName() const { return "step " + std::to_string(step_ + 1) + ": "; }
  Report ReportOf(const LossResult& result, const Batch& batch) const;
  ModelBatch ModelBatchOf(const Batch& batch) { return ForModel(batch, seed_, replica_sum()); }

  // Floats of the flat buffers that nobody needs before they are written again.
  void Discard(std::span<const float> part) const noexcept { buffers_.Discard(std::as_bytes(part)); }

  Options options_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  std::vector<UpdateRange> ranges_;
  std::unique_ptr<collectives::LocalGroup> group_;
  std::unique_ptr<collectives::Communicator>
      machines_;  // the ranks with this local rank; null on one machine
  std::unique_ptr<collectives::Communicator> sums_between_machines_;  // of replica_sum_
  std::unique_ptr<SharedSum> replica_sum_;                            // where model and job need it
  Shared* shared_ = nullptr;
  Member* members_ = nullptr;
  float* parameters_ = nullptr;  // what all ranks of the machine read
  // What whoever updates a range works on, so that its core need not win the lines back from those that read
  // them: the parameters once more, or, with one rank, the same.
  float* master_ = nullptr;
  float* slots_[kMostSlots] = {};
  std::vector<float*> gradients_;  // by local rank
  uint64_t seed_ = 0;
  double squared_norm_ = 0;  // of this step's whole gradient
  uint64_t turn_ = 0;        // steps since Setup
  int64_t step_ = 0;
  Journal journal_;

 private:
  void MeetTheOthers();
  void ConnectMachines();
  std::unique_ptr<collectives::Communicator> ConnectMachines(const std::string& key);
  void MakeReplicaSum();
  void AllocateBuffers();
  bool MachinesAgree(uint64_t fingerprint, std::string* disagreement);
  void Apply(float* parameters, float* const* slots, const float* gradients, size_t begin, size_t end);
  void CompleteStep();

  collectives::SharedSegment control_, buffers_;
  std::vector<const float*> from_;  // SumGradients'
  uint64_t sums_ = 0, broadcasts_ = 0;
  StepResult result_;
  // Of the step under way, for TakeCommitted.
  bool in_step_ = false;
  int64_t global_samples_ = 0;
  double penalty_ = 0;
  std::vector<float> state_before_;  // Model::ExportState
  Buffer completed_;                 // the committed step's parameters and slots, where they are updated
};

}  // namespace lockstep::trainer::strategy
