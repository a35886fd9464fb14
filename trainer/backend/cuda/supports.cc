#include "trainer/backend/cuda/supports.h"

#include "trainer/error.h"

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
      if (capability < kFirstWithBFloat16) {
        return {.reason = "BFloat16 needs compute capability " + CapabilityName(kFirstWithBFloat16) +
                          ", and " + device + " has " + CapabilityName(capability)};
      }
      return {.supported = true, .native = true, .reason = ""};
    case DataType::kInt32:
    case DataType::kUInt8:
      break;
  }
  return {.reason = std::string(OpName(op)) + " has no kernel for " + std::string(DataTypeName(type)) +
                    " on " + device + "; integers are types of data and labels there, not of arithmetic"};
}

void Require(Op op, DataType type, int capability, const std::string& device) {
  const Support support = Supports(op, type, capability, device);
  if (support.supported) return;
  throw Unsupported(std::string(OpName(op)) + " in " + std::string(DataTypeName(type)) + " on " + device +
                    ": " + support.reason);
}

}  // namespace lockstep::trainer::cuda
