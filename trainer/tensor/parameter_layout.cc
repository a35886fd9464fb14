#include "trainer/tensor/parameter_layout.h"

namespace lockstep::trainer {

std::vector<L2Range> ParameterLayout::l2_ranges() const {
  std::vector<L2Range> ranges;
  for (const Variable& variable : variables) {
    if (variable.l2 != 0) {
      ranges.push_back({variable.offset, variable.offset + variable.size, static_cast<float>(variable.l2)});
    }
  }
  return ranges;
}

}  // namespace lockstep::trainer
