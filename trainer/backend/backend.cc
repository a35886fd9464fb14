#include "trainer/backend/backend.h"

#include "trainer/error.h"

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

LossResult ResultOf(const LossSums& sums, int64_t outputs) {
  if (sums.wrong > 0) {
    throw BadData("sample " + std::to_string(sums.wrong - 1) + " of the batch has label " +
                  std::to_string(sums.wrong_label) + "; the model has outputs 0 to " +
                  std::to_string(outputs - 1));
  }
  return {.loss_sum = sums.loss_sum, .correct = sums.correct};
}

}  // namespace lockstep::trainer
