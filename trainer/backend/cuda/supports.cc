#include "trainer/backend/cuda/supports.h"

namespace lockstep::trainer::cuda {
namespace {

constexpr int kFirstWithBFloat16 = 80;  // Ampere

std::string CapabilityName(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace

Support Supports(Op op, DataType type, int capability, const std::string& device) {
  switch (type) {
    case DataType::kFloat32:
      return {.supported = true, .native = true, .reason = ""};
    case DataType::kBFloat16:
      if (op == Op::kSgd || op == Op::kAdam) {
        return {.reason = "parameters and optimizer state are Float32, in every precision"};
      }
      if (op >= Op::kConv2D) {
        return {.reason = "layers other than Dense compute in Float32 in this version"};
      }
      if (op == Op::kMatMul) return {.reason = "products placed by hand are of Float32 on " + device};
      if (capability < kFirstWithBFloat16) {
        return {.reason = "BFloat16 needs compute capability " + CapabilityName(kFirstWithBFloat16) +
                          ", and " + device + " has " + CapabilityName(capability)};
      }
      return {.supported = true, .native = true, .reason = ""};
    case DataType::kInt32:
    case DataType::kUInt8:
      break;
  }
  return {.reason = device + " has no kernel of " + std::string(OpName(op)) + " for " +
                    std::string(DataTypeName(type)) + ": integers are data and labels there, not arithmetic"};
}

}  // namespace lockstep::trainer::cuda
