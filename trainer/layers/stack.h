#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/layers/layer.h"
#include "trainer/layers/layer_config.h"

namespace lockstep::trainer {

// Layers one after another, each reading what the one before made: a model, or the body of a block. It plans
// the memory of a pass and runs the layers; the variables are the layers' own.
// A ReLU behind a layer that can do it along with its own work is done there.
class Stack {
 public:
  // `context` is that of the whole: input is the first layer's, input_gradient and last are of the ends.
  // Throws as MakeLayer. The backend outlives the stack.
  Stack(const std::vector<LayerConfig>& layers, const LayerContext& context, Backend& backend);

  size_t size() const { return layers_.size(); }
  Layer& layer(size_t index) const { return *layers_[index]; }
  const Shape& output_shape() const { return layers_.empty() ? input_ : layers_.back()->output_shape(); }
  int64_t outputs() const { return output_shape().num_elements(); }
  DataType output_type() const { return layers_.back()->output_type(); }
  DataType output_gradient_type() const { return layers_.back()->output_gradient_type(); }
  int64_t training_flops() const;
  // Whether it has no layer that computes: outputs are the inputs.
  bool is_identity() const { return steps_.empty(); }
  bool sums_over_replicas() const;
  bool state_differs() const;
  bool keeps_gradient() const { return steps_.empty() || layers_[steps_.back().layer]->keeps_gradient(); }
  // Whether a layer computes on another backend than the stack's.
  bool placed_elsewhere() const { return placed_elsewhere_; }

  // See Layer. The outputs of all layers but the last lie within what is saved.
  size_t saved_bytes() const { return saved_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  void Forward(const Pass& pass, const LayerMemory& memory);
  // Calls `done(i)` after layer i's backward pass, the last layer first, and for every layer; may be empty.
  void Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx,
                const std::function<void(size_t layer)>& done);

 private:
  // A layer that computes, and where in the saved memory it finds its own; offsets in bytes.
  struct Step {
    size_t layer = 0;
    size_t outputs = 0;
    size_t saved = 0;
    bool backward = true;  // something before it, or of its own, wants a gradient
    bool input_gradient = true;
  };

  void PlanMemory(int64_t max_batch);
  LayerMemory MemoryOf(size_t step, const LayerMemory& memory) const;

  Shape input_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Step> steps_;
  bool placed_elsewhere_ = false;
  size_t saved_bytes_ = 0;
  size_t gradient_bytes_ = 0;  // of the largest gradient between two layers
  size_t scratch_bytes_ = 0;
};

}  // namespace lockstep::trainer
