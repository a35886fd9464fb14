#pragma once

#include <memory>
#include <vector>

#include "trainer/checkpoint/ledger.h"
#include "trainer/checkpointing.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/event_writer.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/process_environment.h"
#include "trainer/strategy/strategy.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {

enum class TrainingEnd {
  kDone,
  kStopped,  // asked to; a checkpoint was written if the job has a folder for them
};

// Trains one job from its resume point to its end, as one rank of it: the epochs, the steps, the evaluations,
// the checkpoints, and what is told of them. Everything it is given outlives it.
class TrainLoop {
 public:
  struct Parts {
    const Config& config;
    const ProcessEnvironment& environment;
    const data::DatasetView& dataset;
    Model& model;
    Optimizer& optimizer;
    strategy::Strategy& strategy;
    Checkpointing* checkpointing;  // null: none
    EventWriter& events;
  };

  explicit TrainLoop(const Parts& parts);

  // Collective, after Strategy::Setup. Throws as its parts do.
  TrainingEnd Run();

 private:
  // A pass over samples that changes nothing.
  struct Evaluation {
    double loss = 0;  // mean, with the L2 penalty
    double accuracy = 0;
  };

  TrainingPosition Start();
  strategy::StepResult Step(const TrainingPosition& position);
  void EndEpoch(const TrainingPosition& position, double samples_per_second);
  Evaluation Evaluate(const char* split, data::Range samples, int64_t epoch);
  // Fills the batch's buffers with these samples (indices or a range).
  template <typename Samples>
  void Gather(const Samples& samples);
  void SetPhase(const char* phase);
  bool Reports() const { return parts_.environment.world.rank == 0; }
  bool MeasuresAccuracy() const;

  Parts parts_;
  data::Sampler sampler_;
  int64_t capacity_;  // samples that the buffers hold
  Buffer inputs_;
  Buffer labels_;
  std::unique_ptr<checkpoint::LedgerWriter> ledger_;
};

// How many samples a rank must hold at most.
int64_t MaxLocalBatch(const Config& config, int world_size);

}  // namespace lockstep::trainer
