#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/environment.h"
#include "launcher/doctor/doctor.h"
#include "launcher/placement/discover.h"
#include "launcher/process/run_program.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::doctor {

namespace {

// In NGC's images: the driver that came with their CUDA.
constexpr char kDriverOfImage[] = "CUDA_DRIVER_VERSION";

constexpr std::chrono::seconds kDriverPatience{60};  // a driver without persistence wakes up slowly

// "535.104.05" → {535, 104, 5}
std::vector<int> Numbers(const std::string& version) {
  std::vector<int> numbers;
  std::istringstream text(version);
  for (std::string part; std::getline(text, part, '.');) numbers.push_back(std::atoi(part.c_str()));
  return numbers;
}

// Of a GPU or of a slice: a product of two small matrices, by the trainer, in a process of its own.
Finding Compute(const std::string& about, const std::string& what, const std::string& uuid,
                const Options& options) {
  if (options.trainer.empty()) {
    return {Level::kWarning, about, what + "; not tried: lockstep-trainer is not installed",
            "install it beside lockstep"};
  }
  process::Launch launch;
  launch.command = {options.trainer, "matmul-demo", "--device", "GPU:0"};
  auto environment = options.environment;
  environment[contract::kCudaVisibleDevices] = uuid;
  launch.environment.assign(environment.begin(), environment.end());
  const auto output = process::RunProgram(launch, kDriverPatience);
  if (!output.ok()) return {Level::kFault, about, what + "; " + output.status().message()};
  if (output->status.exit_code == 0) return {Level::kFine, about, what + "; computes"};
  return {Level::kFault, about, what + "; does not compute: " + process::LastError(*output),
          "docs/gpu.md says what the trainer needs; dmesg and nvidia-smi -q what the driver saw"};
}

}  // namespace

Finding ExamineDriver(const std::string& version, const std::map<std::string, std::string>& environment) {
  const std::string what = "NVIDIA " + version;
  const auto image = environment.find(kDriverOfImage);
  if (image == environment.end() || Numbers(version) >= Numbers(image->second)) {
    return {Level::kFine, "driver", what};
  }
  return {Level::kWarning, "driver",
          what + ", older than " + image->second + ", which came with this image's CUDA",
          "take a newer driver or an older image; on GPUs of data centres the image's entrypoint finds its "
          "libraries for older drivers: start the program by it, /opt/nvidia/nvidia_entrypoint.sh PROGRAM"};
}

std::vector<Finding> ExamineGpus(const Options& options) {
  auto discover = placement::DiscoverOptionsFrom(options.environment, /*gpus=*/true);
  discover.root = options.root;
  const placement::Inventory inventory = placement::Discover(discover);
  std::vector<Finding> findings;
  if (!inventory.driver_version.empty()) {
    findings.push_back(ExamineDriver(inventory.driver_version, options.environment));
  }
  for (const std::string& note : inventory.notes) {
    findings.push_back(
        {Level::kWarning, "GPUs", note,
         "only for jobs with devices of type GPU; in a container: the NVIDIA container toolkit "
         "(docker run --gpus all)"});
  }
  for (const placement::Gpu& gpu : inventory.gpus) {
    const std::string about = "GPU " + std::to_string(gpu.index);
    const std::string what = gpu.name + ", " + telemetry::FormatBytes(gpu.memory_bytes);
    if (!gpu.error.empty()) {
      findings.push_back(
          {Level::kFault, about, what + ": " + gpu.error, "see dmesg; reset it, or restart the machine"});
    } else if (!gpu.mig) {
      findings.push_back(Compute(about, what, gpu.uuid, options));
    } else if (gpu.slices.empty()) {
      findings.push_back({Level::kWarning, about, what + "; in MIG mode, without a slice: nobody can use it",
                          "nvidia-smi mig -cgi PROFILE -C, or leave the mode"});
    }
    for (const placement::MigSlice& slice : gpu.slices) {
      findings.push_back(Compute(about + " " + slice.uuid, slice.name, slice.uuid, options));
    }
  }
  return findings;
}

}  // namespace lockstep::doctor
