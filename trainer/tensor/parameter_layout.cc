#include "trainer/tensor/parameter_layout.h"

namespace lockstep::trainer {

std::vector<UpdateRange> ParameterLayout::update_ranges() const {
  std::vector<UpdateRange> ranges;
  for (const Variable& variable : variables) {
    if (variable.l2 == 0 && !variable.decays) continue;
    ranges.push_back({.begin = variable.offset,
                      .end = variable.offset + variable.size,
                      .l2 = static_cast<float>(variable.l2),
                      .decays = variable.decays});
  }
  return ranges;
}

}  // namespace lockstep::trainer
