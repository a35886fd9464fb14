#include "trainer/backend/backend.h"

namespace lockstep::trainer {

std::string_view OpName(Op op) {
  switch (op) {
    case Op::kDense:
      return "Dense";
    case Op::kSoftmaxCrossEntropy:
      return "SoftmaxCrossEntropy";
    case Op::kMeanSquaredError:
      return "MeanSquaredError";
    case Op::kSgd:
      return "SGD";
    case Op::kAdam:
      return "Adam";
  }
  return "?";
}

}  // namespace lockstep::trainer
