#include "trainer/device_map.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/contract/exit_codes.h"
#include "trainer/config.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/source.h"
#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/model_setup.h"
#include "trainer/pipeline_setup.h"
#include "trainer/process_environment.h"

namespace lockstep::trainer {

int DeviceMap(const std::vector<std::string>& arguments) {
  const int ranks = arguments.size() == 1 ? std::atoi(arguments.front().c_str()) : 0;
  if (ranks < 1) {
    std::fputs("usage: lockstep-trainer device-map PROCESSES\n", stderr);
    return contract::kExitUsage;
  }
  const ProcessEnvironment environment = ReadProcessEnvironment();
  const Config config = ReadConfig(environment.config_file);
  if (config.strategy != strategy::Kind::kPipeline) {
    throw Unsupported("strategy: a device map is a Pipeline's");
  }
  const data::DatasetPlan plan = data::Source::Open(config.data)->plan();
  Devices devices({.threads = environment.threads,
                   .memory = environment.memory,
                   .soft_placement = config.soft_placement});
  Backend& backend = devices.At(environment.device);
  const auto optimizer = MakeOptimizer(OptimizerFor(config, plan.training), backend);
  const ModelOptions whole{
      .sample = config.augmentation.none()
                    ? plan.sample_shape()
                    : data::Augmentation(config.augmentation, plan, config.seed).output_shape(),
      .max_local_batch = config.batch_size,
      .precision = ChoosePrecision(config, backend, /*reports=*/true)};
  const auto stages = MapStages({.model = config.model,
                                 .options = whole,
                                 .asked = config.pipeline,
                                 .slots = optimizer->slots(),
                                 .ranks = ranks,
                                 .batch_size = config.batch_size},
                                backend);
  const auto named = WithNames(config.model.layers);
  auto map = nlohmann::ordered_json::array();
  for (size_t s = 0; s < stages.size(); ++s) {
    nlohmann::ordered_json stage = {{"stage", s}};
    for (size_t r = s; r < static_cast<size_t>(ranks); r += stages.size()) stage["ranks"].push_back(r);
    for (size_t i = stages[s].layers.first; i <= stages[s].layers.last; ++i) {
      stage["layers"].push_back(named[i].name);
    }
    stage["bytes"] = stages[s].bytes;
    if (stages[s].seconds > 0) stage["microBatchSeconds"] = stages[s].seconds;
    map.push_back(std::move(stage));
  }
  std::printf("%s\n", map.dump().c_str());
  return contract::kExitDone;
}

}  // namespace lockstep::trainer
