#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/optimizer/schedule.h"
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
  ScheduleOptions schedule;
  double weight_decay =
      0;  // of the variables that decay, before the rule: w −= learning rate · weight_decay · w
  double clip_value = 0;        // 0: none. Else every gradient is cut to ±clip_value
  double global_clip_norm = 0;  // 0: none. Else the whole gradient is shortened to at most this; not both
  double average_momentum = 0;  // 0: none. Else the parameters' moving average is kept in a slot
};

// Has no state of its own but the options: the state is in the slots, which the caller owns (shared memory,
// checkpoints). Steps are counted from 1.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // State buffers, each of the flat size and starting from zeros, by name: Adam's "m" and "v", "momentum" of
  // SGD with momentum; last the moving "average" of the parameters, if it is kept: Keras' use_ema, w after
  // the first step.
  virtual const std::vector<std::string>& slot_names() const = 0;
  int slots() const { return static_cast<int>(slot_names().size()); }
  // Which of them is the average; -1: none.
  virtual int average_slot() const = 0;

  // One step over elements [begin, end) of the flat buffers. The ranges are the layout's: the l2 of each adds
  // 2 · l2 · w to the gradient of its elements. Gradients are read only. Work is done when the backend has
  // synchronised. Throws Unsupported where it clips by a norm and buffers have none.
  virtual void Update(int64_t step, const UpdateBuffers& buffers, int64_t begin, int64_t end,
                      std::span<const UpdateRange> ranges) = 0;

  // Whether Update needs UpdateBuffers::squared_norm: then no element may be updated before all gradients of
  // the job are summed and have gone through AddPenalties, after which Update adds no 2 · l2 · w of its own.
  virtual bool clips_by_norm() const = 0;
  virtual void AddPenalties(const float* parameters, float* gradients, int64_t begin, int64_t end,
                            std::span<const UpdateRange> ranges) = 0;
  // AddPenalties, and Σ g² over [begin, end) then. Blocks.
  virtual double SquaredNorm(const float* parameters, float* gradients, int64_t begin, int64_t end,
                             std::span<const UpdateRange> ranges) = 0;

  // All of the rule that changes from step to step; UpdateBuffers::rates may hold it.
  virtual StepRates Rates(int64_t step) const = 0;
  virtual double learning_rate(int64_t step) const = 0;
};

// Throws BadModel for options out of range (and names the option). The backend outlives the optimizer.
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, Backend& backend);

}  // namespace lockstep::trainer
