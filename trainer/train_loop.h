#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/batch_feed.h"
#include "trainer/checkpoint/ledger.h"
#include "trainer/checkpointing.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/event_writer.h"
#include "trainer/handover.h"
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
    const data::Augmentation* augmentation;  // null: none
    Backend& backend;
    Model& model;
    Optimizer& optimizer;
    strategy::Strategy& strategy;
    Checkpointing* checkpointing;  // null: none
    EventWriter& events;
    trace::Recorder* trace = nullptr;  // null: nobody asked
    std::optional<Held> held;  // what model and strategy have already; none: from a checkpoint, or begin
    bool regroups = false;     // what is told of this process: it can Keep
    std::string layers = {};   // likewise: those that it has of a model that is cut
  };

  explicit TrainLoop(const Parts& parts);

  // Collective, after Strategy::Setup. Throws as its parts do.
  TrainingEnd Run();
  // Whether model and strategy have the state to go on from: there is something to keep.
  bool has_state() const { return has_state_; }
  // After Run has thrown CollectiveLost: what counts of what was done (Strategy::TakeCommitted), by step.
  std::vector<Held> Keep();

 private:
  // A pass over samples that changes nothing.
  struct Evaluation {
    double loss = 0;  // mean, with the L2 penalty
    double accuracy = 0;
  };

  static data::Sampler::Options SamplerOptions(const Parts& parts);
  TrainingPosition Resume();
  void OpenLedger();
  // Starts the step after those in flight.
  void StartStep();
  BatchFeed::Batch LoadTraced(std::span<const uint32_t> shard);
  // Whether that step may begin before those in flight are done: not past the end of an epoch, nor past a
  // step whose checkpoint is due, since the parameters must then be those of that step.
  bool MayStartStep() const;
  // The oldest in flight becomes part of `done_`; tells of it. Returns whether all are to stop.
  bool FinishStep();
  void Count(const strategy::StepResult& result);
  // What is left to do after the step: the end of its epoch, a checkpoint.
  void CloseStep(bool stop);
  void EndEpoch();
  // What this process holds of its device's memory; of the host's, on the CPU.
  void TellMemory();
  // With the averaged parameters where they are asked for.
  Evaluation EvaluateAsAsked(const char* split, data::Range samples, int64_t epoch);
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
    double data_wait = 0;  // seconds
  };
  // Of the epoch at hand, since this process began or went on with it.
  struct EpochClock {
    double seconds = 0;
    int64_t steps = 0;
  };

  Parts parts_;
  data::Sampler sampler_;
  int64_t total_steps_;
  strategy::DataShare share_;
  int64_t capacity_;  // samples that the feed takes at once
  std::unique_ptr<BatchFeed> feed_;
  std::unique_ptr<checkpoint::LedgerWriter> ledger_;

  bool has_state_ = false;
  TrainingPosition done_;  // after the last finished step
  StepNote last_;          // that step
  AfterStep left_ = AfterStep::kNothing;
  data::Position next_;          // where the next step to start is
  std::deque<Started> started_;  // and not finished; the oldest first
  Clock::time_point finished_;   // when the last finished step was
  EpochClock epoch_;
};

// How many samples one of so many shares of a batch has at most.
int64_t MaxLocalBatch(const Config& config, int shares);

}  // namespace lockstep::trainer
