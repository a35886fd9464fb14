#include "trainer/devices.h"

#include "common/device_name.h"
#include "common/log.h"
#include "trainer/backend/factory.h"
#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

constexpr const char* kCpu = "CPU:0";

}  // namespace

int Devices::GpuCount() {
  if (gpus_) return *gpus_;
  gpus_ = 0;
  plugin_ = CudaPlugin::Open(&no_gpu_);
  if (plugin_) gpus_ = plugin_->entry().device_count(&no_gpu_);
  return *gpus_;
}

std::vector<std::string> Devices::Names() {
  std::vector<std::string> names = {kCpu};
  for (int i = 0; i < GpuCount(); ++i) names.push_back("GPU:" + std::to_string(i));
  return names;
}

const collectives::CudaCommunicators* Devices::communicators() {
  GpuCount();
  if (!plugin_) return nullptr;
  return static_cast<const collectives::CudaCommunicators*>(plugin_->Symbol(collectives::kCudaCommunicators));
}

Backend& Devices::FallBack(const std::string& why) {
  if (!options_.soft_placement) throw Unsupported(why);
  if (said_.insert(why).second) log::Warning(why + "; softPlacement: the CPU is used instead");
  return At(kCpu);
}

Backend& Devices::At(std::string_view name) {
  const Result<DeviceName> read = ParseDeviceName(name);
  if (!read.ok()) throw Unsupported("device: " + read.status().message());
  const std::string device = read->Short();
  if (const auto it = opened_.find(device); it != opened_.end()) return *it->second;
  std::unique_ptr<Backend> backend;
  if (device == kCpu) {
    backend = MakeBackend({.threads = options_.threads});
  } else if (read->type == "GPU" && read->index < GpuCount()) {
    DeviceOptions memory = options_.memory;
    memory.ordinal = read->index;
    backend = plugin_->entry().make_backend(memory);
  } else {
    std::string why = "device " + device + " is not there; there are";
    for (const std::string& there : Names()) why += " " + there;
    if (read->type == "GPU" && GpuCount() == 0) why += " (" + no_gpu_ + ")";
    return FallBack(why);
  }
  return *opened_.emplace(device, std::move(backend)).first->second;
}

Backend& Devices::For(Op op, DataType type, std::string_view name) {
  Backend* backend = &At(name);
  const Support support = backend->Supports(op, type);
  if (!support.supported) {
    backend = &FallBack(std::string(OpName(op)) + " in " + std::string(DataTypeName(type)) + " on " +
                        NameOf(*backend) + ": " + support.reason);
  }
  return *backend;
}

Backend& Devices::For(const LayerConfig& layer, DataType type, std::string_view name) {
  Backend& asked = At(name);
  for (const Op op : OpsOf(layer)) {
    Backend& found = For(op, type, name);
    if (&found != &asked) return found;
  }
  return asked;
}

std::string Devices::NameOf(const Backend& backend) const {
  for (const auto& [name, opened] : opened_) {
    if (opened.get() == &backend) return name;
  }
  return std::string(backend.name());
}

}  // namespace lockstep::trainer
