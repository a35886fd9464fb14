#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/journal.h"
#include "trainer/strategy/pipeline_facts.h"
#include "trainer/strategy/pipeline_plan.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// Each rank has a few consecutive layers, a stage, and its model is that part (ModelOptions::part). A batch
// goes through in micro-batches, so that the stages work at the same time: activations forward, gradients
// back. Several pipelines side by side divide the batch; the ranks of one stage then sum their gradients in
// the order of the pipelines, and each updates a part of the parameters, of which the stage has one copy.
//
// The ranks are processes of one machine. Between two stages are as many places in shared memory as the
// earlier one has passes in flight: whoever makes activations or gradients writes them there and goes on, and
// the other computes on them where they are. Nobody ever waits for a place: by the schedule, who writes into
// one again has had the answer to what was there.
//
// A step is committed when every rank has reported to all: then all gradients are complete and summed, and
// nobody has updated anything. What follows can be done by whoever is left, whenever somebody is lost: each
// rank updates its part piece by piece, so that each can be done again (Journal), and nobody writes over a
// part's gradients before the part is updated. A rank may be in the passes of the next step while another
// still updates; to the step after the next one it does not come without all having reported. All of that is
// in shared memory, which lives as long as one of the ranks.
//
// Randomness is keyed by sample, so the losses are those of one device but for the order of additions; only
// what a layer computes over a batch (batch normalization) it computes over a micro-batch.
class Pipeline final : public Strategy {
 public:
  // Throws Unsupported when the ranks do not make whole pipelines.
  explicit Pipeline(const Options& options);

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override;
  StepResult FinishStep() override { return result_; }
  DataShare data_share() const override { return {place_.pipeline, place_.pipelines}; }
  Totals Evaluate(Model& model, const void* inputs, const void* labels, int64_t n) override;
  void UseAverage(bool average) override;
  double L2Penalty(Model& model) override;
  Totals Sum(const Totals& local) override;
  void Finish() override;
  // Of this rank's stage.
  std::span<const float> parameters() const override { return {mine().parameters, total()}; }
  std::span<const float> slot(int index) const override {
    return {mine().slots[static_cast<size_t>(index)], total()};
  }
  int64_t step() const override { return step_; }
  void Restore(int64_t step, const Fill& fill) override;
  std::vector<NamedShape> Variables(const Model& model) const override;
  std::vector<NamedShape> StateVariables(const Model& model) const override;
  // Among several each stage's ranks bring what is theirs; to one it all goes through shared memory.
  Shares ShareOut(const Model& model, int ranks) const override;
  void Export(Model& model, const Shares& shares, WholeState* to) override;
  void Import(Model& model, int64_t step, const WholeState& from) override;
  bool keeps_committed() const override { return true; }
  std::vector<Committed> TakeCommitted(Model& model) override;
  void Broadcast(std::span<std::byte> data, int root) override;
  void Abort() noexcept override;

 protected:
  const World& world() const override { return options_.world; }

 private:
  using Look = collectives::LocalGroup::Look;

  // What a rank tells all others: at the end of a step, or what it is asked to add up.
  using Report = std::array<double, 6>;
  // One rank in shared memory. Two reports by turns: who is one ahead does not overwrite what another reads.
  struct alignas(64) Member {
    std::atomic<uint64_t> reported;   // reports since Setup
    std::atomic<uint64_t> gradients;  // steps whose gradients are complete here
    std::atomic<uint64_t> updated;    // steps whose updates this rank has done its part of
    alignas(64) std::array<Report, 2> reports;
  };
  // Between a stage and the next one of the same pipeline: micro-batches since Setup.
  struct Boundary {
    alignas(64) std::atomic<uint64_t> forward;   // whose activations are there
    alignas(64) std::atomic<uint64_t> backward;  // whose gradients are there, or whose activations were used
  };
  // One end of it.
  struct Link {
    Boundary* boundary = nullptr;  // null: there is no such neighbour
    int peer = 0;                  // local rank
    size_t places = 0;
    size_t activation_bytes = 0, gradient_bytes = 0;  // of a sample
    std::vector<std::byte*> activations, gradients;   // by place
  };
  // What the ranks of a stage share. Two states by turns: that after the last committed step stays.
  struct StageMemory {
    float* parameters = nullptr;
    std::vector<float*> slots;
    std::vector<float*> sums;  // of gradients over micro-batches, by pipeline
    std::array<std::span<float>, 2> states;
  };

  size_t total() const { return static_cast<size_t>(model_->layout().total); }
  bool leads() const { return place_.pipeline == 0; }
  int stages() const { return options_.pipeline.count(); }
  int RankOf(int stage, int pipeline) const { return pipeline * stages() + stage; }
  collectives::Deadline deadline() const {
    return std::chrono::steady_clock::now() + options_.collective_timeout;
  }
  std::string StepName() const { return "step " + std::to_string(step_ + 1) + ": "; }

  StageMemory& mine() { return memory_[static_cast<size_t>(place_.stage)]; }
  const StageMemory& mine() const { return memory_[static_cast<size_t>(place_.stage)]; }
  float* my_sums() const { return mine().sums[static_cast<size_t>(place_.pipeline)]; }

  void MakeMemory();
  void CutParts();
  Link MakeLink(int stage, size_t offset, Boundary* boundary, int peer) const;
  size_t LinkBytes(int stage) const;
  size_t Places(int stage) const;

  StepResult Step(const Batch& batch);
  StepResult Finished(const Report& totals);
  LossResult Passes(const Batch& batch);
  const void* Inputs(const void* inputs, uint64_t number, const std::string& operation);
  void HandOn(const void* outputs, int64_t n, uint64_t number, const std::string& operation);
  void AddGradients(size_t begin, size_t end, bool first);
  // Over the pipelines. Returns Σ g² of this rank's part, where the optimizer clips by it.
  double SumGradients();
  void Update();
  // Step `step` of floats `range` of a stage's buffers.
  void Apply(int64_t step, const StageFacts& stage, UpdateBuffers buffers, collectives::Range range);
  // Keeps what the layers have beside the parameters, as it is after so many turns.
  void KeepState(uint64_t turns);
  void AppendCommitted(int stage, WholeState* to);
  // The sum over the ranks, in their order, on each.
  Report AddUp(const Report& mine, const std::string& operation);
  bool AllHaveReported(uint64_t number) const;
  Report Reported(uint64_t number) const;
  // Waits until `peer` has brought `counter` to `least`.
  void Await(const std::atomic<uint64_t>& counter, uint64_t least, int peer, const std::string& operation);
  void AwaitStage(std::atomic<uint64_t> Member::*counter, const std::string& operation);

  Options options_;
  PipelinePlace place_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  double squared_norm_ = 0;        // of the whole gradient of the last step that all have reported
  std::vector<StageFacts> facts_;  // by stage
  std::unique_ptr<collectives::LocalGroup> group_;
  collectives::SharedSegment control_, buffers_, exported_;
  Member* members_ = nullptr;
  Link before_, after_;
  std::vector<StageMemory> memory_;  // by stage
  Journal journal_;
  std::vector<size_t> first_piece_;  // of journal_, by rank; and the end
  Buffer micro_gradients_;           // of one micro-batch
  Buffer output_gradient_;           // of the last stage's outputs
  int64_t micro_capacity_ = 0;       // samples of a micro-batch at most
  uint64_t passed_ = 0;              // micro-batches that went through since Setup
  uint64_t reports_ = 0;
  uint64_t broadcasts_ = 0;
  uint64_t turn_ = 0;  // steps since Setup
  // Of the step under way.
  bool in_step_ = false;
  uint64_t step_report_ = 0;  // the number of its report
  int64_t global_samples_ = 0;
  uint64_t seed_ = 0;
  int64_t step_ = 0;
  std::chrono::steady_clock::duration waited_{};  // in this step
  int64_t moved_ = 0;                             // bytes, in this step
  StepResult result_;
};

}  // namespace lockstep::trainer::strategy
