#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/tensor/parameter_layout.h"

// optimizer/ turns gradients into parameters. A rule is element-wise, so that any process may update any
// range of the flat buffers (a shard) and the whole comes out bit for bit as if one had updated it all.
namespace lockstep::trainer {

enum class OptimizerKind { kSgd, kAdam };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kSgd;
  double learning_rate = 0.01;
  double momentum = 0;    // SGD
  bool nesterov = false;  // SGD, with momentum
  double beta1 = 0.9;     // Adam
  double beta2 = 0.999;   // Adam
  double epsilon = 1e-7;  // Adam
};

// Has no state of its own but the options: the state is in the slots, which the caller owns (shared memory,
// checkpoints).
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Number of state buffers, each of the flat size and starting from zeros: Adam 2 (m, v), SGD 0, with
  // momentum 1.
  virtual int slots() const = 0;

  // One step over elements [begin, end) of the flat buffers. `step` counts from 1. The l2 ranges are the
  // layout's: each adds 2 · l2 · w to the gradient of its elements. Gradients are read only. Work is done
  // when the backend has synchronised.
  virtual void Update(int64_t step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
                      std::span<const L2Range> l2_ranges) = 0;

  // What the rule multiplies by at `step`: SGD's learning rate, Adam's alpha. It is all that changes from
  // step to step; UpdateBuffers::rate may hold it.
  virtual float Rate(int64_t step) const = 0;

  virtual double learning_rate() const = 0;
  virtual void set_learning_rate(double learning_rate) = 0;
};

// Throws BadModel for options out of range (and names the option). The backend outlives the optimizer.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, Backend& backend);

}  // namespace lockstep::trainer
