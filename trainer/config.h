#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/source.h"
#include "trainer/layer_placement.h"
#include "trainer/model/model_config.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer {

struct CheckpointConfig {
  std::string directory;
  int64_t every = 0;  // steps; 0: at the end of every epoch
  int keep = 3;
};

// What the trainer is to do: the part of a resolved TrainingJob that concerns it.
struct Config {
  data::SourceOptions data;
  ModelConfig model;
  OptimizerOptions optimizer;
  strategy::Kind strategy = strategy::Kind::kMirrored;
  strategy::CrossDeviceOps cross_device_ops = strategy::CrossDeviceOps::kAuto;
  int64_t batch_size = 32;  // global
  int64_t epochs = 1;
  uint64_t seed = 0;
  Precision precision = Precision::kFloat32;
  bool soft_placement = false;
  bool log_placement = false;
  std::vector<PlacementRule> placement;  // devices as "GPU:1"
  VariablePlacement variables = VariablePlacement::kAuto;
  std::optional<CheckpointConfig> checkpoint;
};

// Reads the resolved manifest (JSON, as the launcher writes it for LOCKSTEP_TRAINER_CONFIG). Throws Error
// with kExitUsage for a file that isn't one, and Unsupported for what this trainer lacks, naming the field.
Config ReadConfig(const std::string& path);

}  // namespace lockstep::trainer
