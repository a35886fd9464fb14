#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/tensor/buffer.h"

namespace lockstep::bench {

// oneDNN's own matrix products of one training step of a multi-layer perceptron, and nothing else: forward
// and backward-weights of every layer and backward-data of all but the first. Each is tried in the layouts
// and primitives that oneDNN has for it, and the fastest is kept. No bias, no activation, no loss, no update:
// the limit for a trainer on oneDNN.
class BareProducts {
 public:
  // widths: features, units of each layer.
  BareProducts(const std::vector<int64_t>& widths, int64_t batch, trainer::DataType type);

  void Step() const;
  // Floating-point operations of a step.
  double flops() const { return flops_; }
  // One line a product: shape, implementation and layout chosen, its speed.
  const std::vector<std::string>& report() const { return report_; }

 private:
  std::vector<trainer::Buffer> buffers_;
  std::vector<std::function<void()>> products_;
  std::vector<std::string> report_;
  double flops_ = 0;
};

}  // namespace lockstep::bench
