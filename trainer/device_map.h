#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

// `lockstep-trainer device-map PROCESSES`: which layers of the pipeline that the environment's configuration
// asks for each of so many processes would have, without training or meeting anybody. Writes a JSON array to
// standard output, an object a stage: "stage", "ranks", "layers" (by name), "bytes", and, where it was
// measured, "microBatchSeconds". Returns the exit code. Throws as SetUpPipeline, and BadData.
int DeviceMap(const std::vector<std::string>& arguments);

}  // namespace lockstep::trainer
