#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// What all strategies share in which every machine has one whole copy of the parameters and of the
// optimizer's state: meeting the others, the buffers, sums of a few numbers, restoring. How a step is done is
// the derived class's.
class Replicated : public Strategy {
 public:
  explicit Replicated(const Options& options) : options_(options) {}

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override { result_ = Step(batch); }
  StepResult FinishStep() override { return result_; }
  Totals Sum(const Totals& local) override;
  void Finish() override;
  std::span<const float> parameters() const override { return {parameters_, total()}; }
  std::span<const float> slot(int index) const override {
    return {slots_[static_cast<size_t>(index)], total()};
  }
  int64_t step() const override { return step_; }
  void Restore(int64_t step, const Fill& fill) override;
  void Abort() noexcept override;

 protected:
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
    std::atomic<uint64_t> updated;              // steps whose updates this rank has done its part of
    std::atomic<uint64_t> model;                // fingerprint
    alignas(64) std::array<Report, 2> reports;  // of steps
    alignas(64) std::array<Report, 2> sums;     // of Sum
  };
  struct alignas(64) Shared {
    std::atomic<uint64_t> chunks_done;         // over all steps
    alignas(64) std::array<Report, 2> totals;  // of steps, over all machines
    alignas(64) std::array<Report, 2> sums;    // of Sum
  };

  virtual StepResult Step(const Batch& batch) = 0;
  // Called at the end of Setup.
  virtual void Prepare() {}

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
  // With the gradients in this rank's own buffer; and the parameters out for all to read.
  void Update(size_t begin, size_t end);
  StepResult Finished(const Report& totals, const Batch& batch, double penalty);
  std::string StepName() const { return "step " + std::to_string(step_ + 1) + ": "; }
  double Penalty() const { return l2_ranges_.empty() ? 0 : model_->L2Penalty(); }
  Report ReportOf(const LossResult& result, const Batch& batch) const;

  Options options_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  std::vector<L2Range> l2_ranges_;
  std::unique_ptr<collectives::LocalGroup> group_;
  std::unique_ptr<collectives::Communicator>
      machines_;  // the ranks with this local rank; null on one machine
  Shared* shared_ = nullptr;
  Member* members_ = nullptr;
  float* parameters_ = nullptr;  // what all ranks of the machine read
  // What whoever updates a range works on, so that its core need not win the lines back from those that read
  // them: the parameters once more, or, with one rank, the same.
  float* master_ = nullptr;
  float* slots_[2] = {nullptr, nullptr};
  std::vector<float*> gradients_;  // by local rank
  uint64_t turn_ = 0;              // steps since Setup
  int64_t step_ = 0;

 private:
  void MeetTheOthers();
  void ConnectMachines();
  void AllocateBuffers();
  bool MachinesAgree(uint64_t fingerprint, std::string* disagreement);

  collectives::SharedSegment control_, buffers_;
  std::vector<const float*> from_;  // SumGradients'
  uint64_t sums_ = 0;
  StepResult result_;
};

}  // namespace lockstep::trainer::strategy
