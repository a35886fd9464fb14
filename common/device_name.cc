#include "common/device_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 3> kTypes = {"CPU", "GPU", "TPU"};
constexpr int kMaxIndex = 65535;

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

bool IsType(std::string_view text) {
  return std::find(kTypes.begin(), kTypes.end(), Upper(text)) != kTypes.end();
}

Status Wrong(std::string_view name, const std::string& why) {
  return InvalidArgument("\"" + std::string(name) + "\" is not a device: " + why +
                         "; write GPU:1, /gpu:1 or /job:worker/replica:0/task:0/device:GPU:1");
}

std::optional<int> ParseIndex(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxIndex)
    return std::nullopt;
  return value;
}

// "GPU:1" or "GPU".
Status TakeDevice(std::string_view part, std::string_view name, DeviceName& device) {
  if (!device.type.empty()) return Wrong(name, "it names two devices");
  const size_t colon = part.find(':');
  const std::string_view type = part.substr(0, colon);
  if (!IsType(type)) return Wrong(name, "\"" + std::string(type) + "\" is not one of CPU, GPU, TPU");
  if (colon != std::string_view::npos) {
    const auto index = ParseIndex(part.substr(colon + 1));
    if (!index) return Wrong(name, "\"" + std::string(part.substr(colon + 1)) + "\" is not an index");
    device.index = *index;
  }
  device.type = Upper(type);
  return Status();
}

Status TakeNumber(std::string_view key, std::string_view value, std::string_view name,
                  std::optional<int>& number) {
  if (number) return Wrong(name, std::string(key) + " stands twice");
  number = ParseIndex(value);
  if (!number) return Wrong(name, "\"" + std::string(value) + "\" is not a number of a " + std::string(key));
  return Status();
}

Status TakePart(std::string_view part, std::string_view name, DeviceName& device) {
  const size_t colon = part.find(':');
  const std::string_view key = part.substr(0, colon);
  const std::string_view value =
      colon == std::string_view::npos ? std::string_view() : part.substr(colon + 1);
  if (key == "job") {
    if (device.job) return Wrong(name, "job stands twice");
    if (value.empty()) return Wrong(name, "the job has no name");
    device.job = std::string(value);
    return Status();
  }
  if (key == "replica") return TakeNumber(key, value, name, device.replica);
  if (key == "task") return TakeNumber(key, value, name, device.task);
  if (key == "device") return TakeDevice(value, name, device);
  if (IsType(key)) return TakeDevice(part, name, device);
  return Wrong(name, "\"" + std::string(key) + "\" is not one of job, replica, task, device, CPU, GPU, TPU");
}

}  // namespace

std::string DeviceName::Short() const { return type + ":" + std::to_string(index); }

std::string DeviceName::Full() const {
  std::string text;
  if (job) text += "/job:" + *job;
  if (replica) text += "/replica:" + std::to_string(*replica);
  if (task) text += "/task:" + std::to_string(*task);
  return text + "/device:" + Short();
}

Result<DeviceName> ParseDeviceName(std::string_view name) {
  DeviceName device;
  std::string_view rest = name;
  if (!rest.starts_with('/')) {
    LOCKSTEP_RETURN_IF_ERROR(TakeDevice(rest, name, device));
    return device;
  }
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    LOCKSTEP_RETURN_IF_ERROR(TakePart(rest.substr(0, end), name, device));
    rest.remove_prefix(end);
  }
  if (device.type.empty()) return Wrong(name, "it says no type of device");
  return device;
}

}  // namespace lockstep
