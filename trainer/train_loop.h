#pragma once

#include <chrono>
#include <deque>
#include <memory>

#include "trainer/batch_feed.h"
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
    Backend& backend;
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

  TrainingPosition Resume();
  // Starts the step after those in flight.
  void StartStep();
  // Whether that step may begin before those in flight are done: not past the end of an epoch, nor past a
  // step whose checkpoint is due, since the parameters must then be those of that step.
  bool MayStartStep() const;
  // The oldest in flight becomes part of `done_`; tells of it. Returns whether all are to stop.
  bool FinishStep();
  void EndEpoch();
  // What this process holds of its device's memory; of the host's, on the CPU.
  void TellMemory();
  Evaluation Evaluate(const char* split, data::Range samples, int64_t epoch);
  void SetPhase(const char* phase);
  bool Reports() const { return parts_.environment.world.rank == 0; }
  bool MeasuresAccuracy() const;
  bool CheckpointIsDue(int64_t step, bool end_of_epoch) const {
    return parts_.checkpointing != nullptr && parts_.checkpointing->Due(step, end_of_epoch);
  }

  using Clock = std::chrono::steady_clock;
  struct Started {
    data::Position at;
    Clock::time_point time;
  };
  // Of the epoch at hand, since this process began or went on with it.
  struct EpochClock {
    double seconds = 0;
    int64_t steps = 0;
  };

  Parts parts_;
  data::Sampler sampler_;
  int64_t total_steps_;
  int64_t capacity_;  // samples that the feed takes at once
  std::unique_ptr<BatchFeed> feed_;
  std::unique_ptr<checkpoint::LedgerWriter> ledger_;

  TrainingPosition done_;        // after the last finished step
  data::Position next_;          // where the next step to start is
  std::deque<Started> started_;  // and not finished; the oldest first
  Clock::time_point finished_;   // when the last finished step was
  EpochClock epoch_;
};

// How many samples a rank must hold at most.
int64_t MaxLocalBatch(const Config& config, int world_size);

}  // namespace lockstep::trainer
