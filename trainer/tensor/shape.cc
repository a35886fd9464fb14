#include "trainer/tensor/shape.h"

namespace lockstep::trainer {

std::string Shape::ToString() const {
  std::string text = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

}  // namespace lockstep::trainer
