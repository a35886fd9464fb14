#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/contract/store.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/config.h"
#include "trainer/data/sampler.h"
#include "trainer/event_writer.h"
#include "trainer/model/model.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

// Sums over the part of the epoch that is done, so that an interrupted epoch reports what an undisturbed one
// does.
struct EpochSums {
  double loss = 0;  // Σ over samples
  int64_t correct = 0;
  int64_t samples = 0;
};

// Where a training is, beside its parameters.
struct TrainingPosition {
  int64_t step = 0;  // done so far
  data::Position data;
  EpochSums epoch;
};

// The checkpoints of one job: every rank resumes from what rank 0 finds; rank 0 writes, on a thread of its
// own while the training goes on, at most one at a time.
class Checkpointing {
 public:
  struct Options {
    CheckpointConfig config;
    checkpoint::Signature signature;
    strategy::World world;
    std::string run;  // see checkpoint::Directory
    int64_t generation = 0;
    std::chrono::milliseconds timeout{60'000};
  };

  // `store` may be null when there is one rank. Model, strategy and writer outlive this. What goes wrong
  // without ending the training is warned of in the log and, by rank 0, in an event.
  Checkpointing(Options options, contract::Store* store, Model& model, strategy::Strategy& strategy,
                EventWriter& events);
  // Waits for the checkpoint that is being written.
  ~Checkpointing();

  // Collective, after Strategy::Setup: the newest whole checkpoint, restored; none when there is none. Throws
  // BadModel when it is another job's, BadData when another rank cannot read it (the folder is to be shared).
  std::optional<TrainingPosition> Resume();

  // Whether a checkpoint is due after this step. The same on every rank.
  bool Due(int64_t step, bool end_of_epoch) const;

  // On rank 0: copies the state and hands it to the thread; waits for the one before. Elsewhere it does
  // nothing: no rank can change the shared state before rank 0 takes part in the next step. Throws
  // CollectiveLost when a newer generation writes to the folder.
  void Save(const TrainingPosition& position);
  // Waits until everything handed over is on disk, or has failed.
  void Flush();

 private:
  void WriteLoop();
  void Report(const Result<std::string>& saved, int64_t step, double seconds);
  void ThrowIfFenced();
  void Restore(const checkpoint::Snapshot& snapshot);

  Options options_;
  contract::Store* store_;
  Model& model_;
  strategy::Strategy& strategy_;
  EventWriter& events_;
  checkpoint::Directory directory_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  checkpoint::Snapshot snapshot_;
  bool pending_ = false;
  bool ending_ = false;
  std::string fenced_;  // why this process may not write any more
  std::thread thread_;  // rank 0's
};

}  // namespace lockstep::trainer
