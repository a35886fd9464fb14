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
  double loss_average = 0;  // of the steps so far, before its bias is corrected: see TrainLoop
  std::string board;        // what parameter servers note beside (first_server.cc); of others empty
};

// The checkpoints of one job: every rank resumes from what rank 0 finds. They are written on threads while
// the training goes on, at most one at a time: a small one by rank 0; a large one in parts, by as many ranks
// as can bring a share of the state at the same time (TrainingState::ShareOut), and it counts once rank 0
// knows from the store that all parts are durable and has written what names them.
class Checkpointing {
 public:
  // From twice so many bytes on a checkpoint is written in parts, of about so many each or as many as there
  // are ranks.
  static constexpr int64_t kPartBytes = int64_t{16} << 20;

  struct Options {
    CheckpointConfig config;
    checkpoint::Signature signature;
    strategy::World world;
    std::string run;  // see checkpoint::Directory
    int64_t generation = 0;
    std::chrono::milliseconds timeout{60'000};
    int64_t part_bytes = kPartBytes;
  };

  // `store` may be null when there is one rank. Model, state and writer outlive this. What goes wrong
  // without ending the training is warned of in the log and, by rank 0, in an event.
  Checkpointing(Options options, contract::Store* store, Model& model, strategy::TrainingState& state,
                EventWriter& events);
  // Waits for the checkpoint that is being written.
  ~Checkpointing();

  // Collective, once the state can be replaced: the newest whole checkpoint, restored; none when there is
  // none. Throws BadModel when it is another job's, Superseded as Save, BadData when another rank cannot read
  // it (the folder is to be shared).
  std::optional<TrainingPosition> Resume();

  // Collective, instead, where the state comes from elsewhere: this generation writes to the folder from now
  // on. Throws Superseded and CollectiveLost as Save.
  void TakeOver();

  // Whether a checkpoint is due after this step. The same on every rank.
  bool Due(int64_t step, bool end_of_epoch) const;

  // Collective. On ranks that bring a share: copies it and hands it to the thread; waits for the one before.
  // Elsewhere it does no more than bring the state there, and make the mean of what differs between replicas:
  // no rank can change the shared state before all take part in the next step. Throws CollectiveLost when a
  // newer generation writes to the folder, Superseded when another run does for good.
  void Save(const TrainingPosition& position);
  // Waits until everything handed over is on disk, or has failed.
  void Flush();
  // Others were lost: what waits for a checkpoint to be written, now or later, throws CollectiveLost, and no
  // part of others is waited for any more. From any thread.
  void Abort() noexcept;

 private:
  std::optional<checkpoint::Directory::Loaded> Begin(bool loads);
  void ShareOut(int64_t term);
  void AwaitWritten(std::unique_lock<std::mutex>& lock);
  void WriteLoop();
  Result<std::string> Write();
  Result<std::string> WriteInParts();
  Result<checkpoint::Seal> AwaitPart(int rank, int64_t step);
  void Report(const Result<std::string>& saved, int64_t step, double seconds);
  void ThrowIfFenced();

  Options options_;
  contract::Store* store_;
  Model& model_;
  strategy::TrainingState& state_;
  EventWriter& events_;
  checkpoint::Directory directory_;
  strategy::Shares shares_;    // from Resume or TakeOver on
  std::vector<int> bringers_;  // the ranks that bring some
  int64_t term_ = 0;           // rank 0's claim, under which parts are written

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  checkpoint::Snapshot snapshot_;
  double blocked_ = 0;  // seconds that the training stood still for it
  bool pending_ = false;
  bool ending_ = false;
  bool aborted_ = false;
  Status fenced_;       // not OK: why this process may not write any more
  std::thread thread_;  // of ranks that bring a share
};

}  // namespace lockstep::trainer
