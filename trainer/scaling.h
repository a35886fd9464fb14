#pragma once

#include "trainer/config.h"

namespace lockstep::trainer {

// Changes config.batch_size and config.optimizer.learning_rate to what config.scaling makes of them on
// `replicas` of the config.replicas; the batch rounded to whole samples, at least 1.
void ScaleTo(int replicas, Config* config);

}  // namespace lockstep::trainer
