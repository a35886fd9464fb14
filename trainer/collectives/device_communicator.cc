#include "trainer/collectives/device_communicator.h"

namespace lockstep::trainer::collectives {

std::string_view DeviceOpsName(DeviceOps ops) {
  switch (ops) {
    case DeviceOps::kNccl:
      return "NCCL";
    case DeviceOps::kHierarchicalCopy:
      return "HierarchicalCopy";
    case DeviceOps::kReductionToOneDevice:
      return "ReductionToOneDevice";
  }
  return "?";
}

}  // namespace lockstep::trainer::collectives
