#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/augmentation.h"
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

// What a job that goes on with fewer replicas than its manifest asks for does to the global batch and to the
// learning rate. kKeepGlobalBatch: nothing, each process takes more samples; the training is that of the
// whole job. kLinear: each process takes as many samples as before, and the learning rate shrinks with the
// global batch (the linear scaling rule of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in
// 1 Hour", 2017). An epoch has all samples, and so more steps.
enum class Scaling { kKeepGlobalBatch, kLinear };

// strategy.type: ParameterServer.
struct ServedConfig {
  bool synchronous = true;
  std::optional<int> wait_for;
  std::optional<int64_t> max_gradient_age;
};

// What the trainer is to do: the part of a resolved TrainingJob that concerns it.
struct Config {
  data::SourceOptions data;
  data::AugmentationOptions augmentation;
  ModelConfig model;
  OptimizerOptions optimizer;     // its schedule's decay_steps may be 0: to the end of the training
  bool evaluate_average = false;  // validation and test with the averaged parameters
  strategy::Kind strategy = strategy::Kind::kMirrored;
  strategy::CrossDeviceOps cross_device_ops = strategy::CrossDeviceOps::kAuto;
  strategy::PipelineOptions pipeline;  // no stages: cut by what the layers cost
  strategy::Shard shard = strategy::Shard::kNone;
  bool copy_shards = true;
  Scaling scaling = Scaling::kKeepGlobalBatch;
  int replicas = 1;               // that the manifest asks for
  int64_t batch_size = 32;        // global
  int gradient_accumulation = 1;  // pieces in which a process works off its part of a batch
  int64_t epochs = 1;
  uint64_t seed = 0;
  Precision precision = Precision::kFloat32;
  bool soft_placement = false;
  bool log_placement = false;
  std::vector<PlacementRule> placement;  // devices as "GPU:1"
  VariablePlacement variables = VariablePlacement::kAuto;
  std::optional<CheckpointConfig> checkpoint;
  std::optional<ServedConfig> served;  // then `strategy` and cross_device_ops mean nothing
};

// Reads the resolved manifest (JSON, as the launcher writes it for LOCKSTEP_TRAINER_CONFIG). Throws Error
// with kExitUsage for a file that isn't one, and Unsupported for what this trainer lacks, naming the field.
Config ReadConfig(const std::string& path);

}  // namespace lockstep::trainer
