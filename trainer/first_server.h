#pragma once

#include <chrono>
#include <memory>

#include "trainer/checkpoint/ledger.h"
#include "trainer/checkpointing.h"
#include "trainer/config.h"
#include "trainer/event_writer.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/coordinator.h"
#include "trainer/process_environment.h"
#include "trainer/train_loop.h"

namespace lockstep::trainer {

// The job's state as server 0 has it from all servers, or for all of them.
class ServedState final : public strategy::TrainingState {
 public:
  ServedState(int64_t floats, int slots) : floats_(floats), slots_(slots) {}

  // What is exported from now on, until it is taken.
  void Set(std::shared_ptr<const parameter_server::FlatState> state) { state_ = std::move(state); }
  std::shared_ptr<const parameter_server::FlatState> Take() { return std::move(state_); }

  strategy::Shares ShareOut(const Model& model, int ranks) const override;
  void Export(Model& model, const strategy::Shares& shares, strategy::WholeState* to) override;
  void Import(Model& model, int64_t step, const strategy::WholeState& from) override;
  // What a training begins with.
  void Initialize(Model& model, uint64_t seed);

 private:
  int64_t floats_;
  int slots_;
  std::shared_ptr<const parameter_server::FlatState> state_;
};

// Server 0 of a job with parameter servers: where the training begins or goes on, what is saved and told of
// it, and its end. Its checkpoints are those of every other strategy. Everything it is given outlives it.
class FirstServer {
 public:
  struct Parts {
    const Config& config;
    const ProcessEnvironment& environment;
    Model& model;
    Optimizer& optimizer;
    ServedState& state;
    Checkpointing* checkpointing;  // null: none, and a lost server costs everything
    EventWriter& events;
    int64_t training_samples = 0;
  };

  explicit FirstServer(const Parts& parts);

  // Of each update; under the coordinator's lock.
  void Tell(const parameter_server::Coordinator::Options::News& news);

  // Throws as its parts do.
  TrainingEnd Run(parameter_server::Coordinator& coordinator);

 private:
  using Clock = std::chrono::steady_clock;

  // The state to begin with: the newest checkpoint's, or that of the seed.
  parameter_server::WorkBoard::State Resume();
  void Begin(parameter_server::Coordinator& coordinator);
  void Save(parameter_server::Coordinator& coordinator);
  TrainingPosition PositionOf(const parameter_server::WorkBoard::State& board) const;
  parameter_server::WorkBoard::State BoardOf(const TrainingPosition& position) const;
  void TellEpoch(const parameter_server::WorkBoard::Update& update);

  Parts parts_;
  int64_t batches_per_epoch_;
  bool resumed_ = false;  // once at least
  std::unique_ptr<checkpoint::LedgerWriter> ledger_;
  Clock::time_point last_update_ = Clock::now();
  Clock::time_point epoch_began_ = Clock::now();
  int64_t samples_since_ = 0;
};

}  // namespace lockstep::trainer
