#pragma once

#include <span>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/model/model.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {

// A worker's parameters and gradients: once where its model computes with them, once in the host's memory as
// the servers have them. With a model on the same kind of device as the servers', a processor, these are the
// same; a GPU's go up and down through pinned memory, in the order that the servers have elements in.
class WorkerBuffers {
 public:
  // Binds the model, whose parameters are zeros. `served` has the layout that is served, the same variables
  // in the same order, and may be the model itself. All outlive this. Throws OutOfMemory.
  WorkerBuffers(Model& model, const Model& served, Backend& backend);

  // As they are served: to be written, then followed by ParametersCame.
  std::span<float> parameters() { return parameters_.span<float>(); }
  // What was written is what the model computes with. Blocks.
  void ParametersCame();
  // Those of the model's last step, as they are served, until the next call. Blocks.
  std::span<const float> TakeGradients();

 private:
  void Convert(const Model& from, const float* flat, const Model& to, float* to_flat);

  Model& model_;
  const Model& served_;
  Backend& backend_;
  Buffer parameters_, gradients_;          // served
  Buffer own_parameters_, own_gradients_;  // the model's, on its device; empty where it has the others
  Buffer passage_;                         // pinned, in the model's layout
  std::vector<float> canonical_;
};

}  // namespace lockstep::trainer
