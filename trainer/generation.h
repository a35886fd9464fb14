#pragma once

#include <memory>
#include <vector>

#include "common/contract/store.h"
#include "trainer/checkpointing.h"
#include "trainer/config.h"
#include "trainer/devices.h"
#include "trainer/event_writer.h"
#include "trainer/handover.h"
#include "trainer/process_environment.h"
#include "trainer/shared_dataset.h"
#include "trainer/train_loop.h"

namespace lockstep::trainer {

// One rank of one generation of a training job: all that depends on who the others are, from the meeting in
// the store to the training loop. What does not (devices, the samples in memory) it is given, and leaves to
// the next one.
class Generation {
 public:
  struct Parts {
    Config config;  // as the manifest has it, for all its replicas
    ProcessEnvironment environment;
    Devices& devices;
    std::unique_ptr<const SharedDataset>& dataset;  // null: not read yet
    EventWriter& events;
    const std::vector<Held>& held;  // of the generation before, by step
    bool told = false;              // the launcher can tell this process to regroup
  };

  // Collective: meets the others, and all have the state that they have held. Throws as its parts do.
  explicit Generation(const Parts& parts);
  ~Generation();

  // Collective.
  TrainingEnd Run();

  // From any thread; the first from a signal handler too.
  void RequestStop() noexcept;
  void Abort() noexcept;
  // After Run has thrown CollectiveLost: whether there is something to keep, and what.
  bool can_keep() const;
  std::vector<Held> Keep();

 private:
  struct Placement;

  void PlaceModel();
  ModelOptions PartOfModel(const ModelOptions& whole, strategy::PipelineOptions* pipeline);
  std::string LayersHere(const ModelOptions& part) const;
  strategy::Options StrategyOptions(const strategy::PipelineOptions& pipeline);
  void SetUpCheckpointing(Precision precision);
  void LogPlacement() const;
  bool OnDevice() const;
  bool reports() const { return parts_.environment.world.rank == 0; }
  bool regroups() const { return parts_.told && strategy_->keeps_committed(); }

  Parts parts_;
  std::unique_ptr<contract::Store> store_;
  std::unique_ptr<trace::Recorder> trace_;  // null: nobody asked
  std::unique_ptr<data::Augmentation> augmentation_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<strategy::Strategy> strategy_;
  std::unique_ptr<Checkpointing> checkpointing_;
  std::unique_ptr<TrainLoop> loop_;
};

}  // namespace lockstep::trainer
