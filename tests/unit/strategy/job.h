#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/collectives/ranks.h"
#include "trainer/backend/factory.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::testing {

// A job whose ranks are threads of the test: a small perceptron on made-up data.
struct Job {
  int machines = 1;
  int local_size = 1;
  trainer::strategy::Kind kind = trainer::strategy::Kind::kMirrored;
  trainer::strategy::CrossDeviceOps ops = trainer::strategy::CrossDeviceOps::kAuto;
  trainer::strategy::Shard shard = trainer::strategy::Shard::kNone;
  bool copy_shards = false;
  trainer::strategy::PipelineOptions pipeline;  // of a pipeline: its stages
  trainer::OptimizerOptions optimizer{.kind = trainer::OptimizerKind::kAdam, .learning_rate = 0.01};
  std::vector<int64_t> widths{20, 300, 64, 10};  // more than one chunk of parameters
  double l2 = 0;
  bool normalised = false;   // with batch normalization and Dropout behind each hidden layer
  bool synchronised = true;  // that normalization, over the replicas
  uint64_t seed = 1;
  int64_t global_batch = 48;
  // How many of a batch's samples share s takes; empty: equal parts.
  std::function<int64_t(int share, int64_t step)> share;
  std::chrono::milliseconds timeout{30'000};
  // Of a rank; empty: the CPU.
  std::function<std::unique_ptr<trainer::Backend>(int rank)> backend;
  // What a rank has in place of its optimizer; empty: nothing.
  std::function<std::unique_ptr<trainer::Optimizer>(int rank, std::unique_ptr<trainer::Optimizer>)> wrap;
  const trainer::collectives::CudaCommunicators* communicators = nullptr;  // of such ranks
  bool record_steps = true;
  int pieces = 1;                                            // of each step
  std::function<trainer::trace::Recorder*(int rank)> trace;  // of a rank; empty: none

  int size() const { return machines * local_size; }
  bool is_pipeline() const { return kind == trainer::strategy::Kind::kPipeline; }
  // Into how many parts a batch is divided.
  int shares() const { return is_pipeline() ? size() / pipeline.count() : size(); }
};

// What one rank of a job has.
class JobRank {
 public:
  // A rank that is a thread of the test, or (`segments` is null) a process.
  JobRank(const Job& job, contract::Store& store, trainer::collectives::InProcessSegments* segments,
          int rank);
  JobRank(const Job& job, Meeting& meeting, int rank)
      : JobRank(job, meeting.store, &meeting.segments, rank) {}

  trainer::strategy::Strategy& strategy() { return *strategy_; }
  trainer::Model& model() { return *model_; }
  trainer::Optimizer& optimizer() { return *optimizer_; }
  trainer::DeviceBackend* device();  // null on processors

  void Setup() { strategy_->Setup(*model_, *optimizer_, job_.seed); }
  // This rank's share of global batch `step`: its place, and the labels if they are not to be what they are.
  trainer::strategy::Batch Load(int64_t step, const std::vector<int32_t>& labels = {});
  trainer::strategy::StepResult Step(int64_t step) { return strategy_->TrainStep(Load(step)); }
  int rank() const { return rank_; }

 private:
  Job job_;
  int rank_;
  std::unique_ptr<trainer::Backend> backend_;
  std::unique_ptr<trainer::Model> model_;
  std::unique_ptr<trainer::Optimizer> optimizer_;
  std::unique_ptr<trainer::strategy::Strategy> strategy_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  std::vector<uint32_t> samples_;
  std::vector<trainer::Buffer> on_device_;  // inputs and labels, more than there are steps in flight
};

// The same job's end on every rank.
struct Outcome {
  std::vector<std::string> thrown;          // by rank; "" for nothing
  std::vector<std::vector<double>> losses;  // by rank, step
  // By rank, canonical; of a pipeline rank 0's alone.
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<std::vector<float>>> slots;  // by rank, slot; of a divided job rank 0's alone
};

// Trains for `steps`; `after` is called on each rank after each step, before the next.
Outcome Train(const Job& job, int64_t steps,
              const std::function<void(JobRank&, const trainer::strategy::StepResult&)>& after = {});

}  // namespace lockstep::testing
