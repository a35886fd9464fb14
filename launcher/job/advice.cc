#include "launcher/job/advice.h"

#include <algorithm>
#include <string_view>

namespace lockstep::job {

namespace {

// CUDA's cudaErrorInvalidDevice, as the runtime words it, and so every framework.
constexpr std::string_view kNoSuchNumber = "invalid device ordinal";
// PyTorch's, and the runtime's cudaErrorNoDevice.
constexpr std::string_view kNoGpus[] = {"No CUDA GPUs are available", "no CUDA-capable device is detected"};

bool Says(const std::vector<std::string>& lines, std::string_view words) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

}  // namespace

std::string AdviceFor(const std::vector<std::string>& last_lines, const placement::ProcessDevices& devices) {
  const size_t seen = devices.visible.size();
  if (devices.type != spec::DeviceType::kGpu) {
    const bool wants =
        Says(last_lines, kNoSuchNumber) || Says(last_lines, kNoGpus[0]) || Says(last_lines, kNoGpus[1]);
    return wants ? "it asked for a GPU, and was given none (devices.type: CPU)" : "";
  }
  if (!Says(last_lines, kNoSuchNumber)) return "";
  if (seen == 1) {
    return "it sees one GPU, which is cuda:0 (devices.visibility: PerProcess), and asked for another, as "
           "set_device(LOCAL_RANK) does: use cuda:0, or say devices.visibility: PerReplica";
  }
  return "it sees " + std::to_string(seen) + " GPUs, cuda:0 to cuda:" + std::to_string(seen - 1) +
         ", and asked for another";
}

}  // namespace lockstep::job
