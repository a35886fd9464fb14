#include "trainer/layers/placed.h"

#include <algorithm>
#include <utility>

#include "trainer/error.h"

namespace lockstep::trainer {

PlacedLayer::PlacedLayer(std::unique_ptr<Layer> layer, const LayerContext& context, Backend& home,
                         Backend& there)
    : layer_(std::move(layer)),
      home_(home),
      there_(there),
      inputs_(context.input.num_elements()),
      input_type_(context.compute) {
  if (context.passes_in_flight > 1) {
    throw Unsupported("layer " + name() + " on a device of its own: one pass at a time, and " +
                      std::to_string(context.passes_in_flight) + " are to be in flight");
  }
  const size_t x = InputBytes(context.max_batch);
  const size_t y = OutputBytes(context.max_batch, output_type());
  const size_t dy = OutputBytes(context.max_batch, output_gradient_type());
  x_ = Buffer(there.allocator(), x);
  y_ = Buffer(there.allocator(), y);
  dy_ = Buffer(there.allocator(), dy);
  saved_ = Buffer(there.allocator(), layer_->saved_bytes());
  scratch_ = Buffer(there.allocator(), layer_->scratch_bytes());
  if (context.input_gradient) dx_ = Buffer(there.allocator(), x);
  size_t largest = std::max({x, y, dy});
  for (const VariableSpec& variable : variables()) {
    const size_t bytes = static_cast<size_t>(variable.stored_size) * sizeof(float);
    copies_.push_back(
        {.value = Buffer(there.allocator(), bytes), .gradient = Buffer(there.allocator(), bytes)});
    largest = std::max(largest, bytes);
  }
  staging_ = Buffer(HostAllocator(), largest);
  std::vector<BoundVariable> own;
  for (const Copy& copy : copies_) own.push_back({copy.value.as<float>(), copy.gradient.as<float>()});
  layer_->Bind(own);
}

void PlacedLayer::Send(const void* from_home, void* to_there, size_t bytes) {
  home_.Download(staging_.data(), from_home, bytes);
  there_.Upload(to_there, staging_.data(), bytes);
}

void PlacedLayer::Fetch(const void* from_there, void* to_home, size_t bytes) {
  there_.Download(staging_.data(), from_there, bytes);
  home_.Upload(to_home, staging_.data(), bytes);
}

void PlacedLayer::Bind(const std::vector<BoundVariable>& variables) {
  bound_ = variables;
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].stale_begin = 0;
    copies_[i].stale_end = layer_->variables()[i].stored_size;
  }
}

void PlacedLayer::ParametersChanged(int index, int64_t begin, int64_t end) {
  Copy& copy = copies_[static_cast<size_t>(index)];
  const bool current = copy.stale_begin == copy.stale_end;
  copy.stale_begin = current ? begin : std::min(copy.stale_begin, begin);
  copy.stale_end = current ? end : std::max(copy.stale_end, end);
}

void PlacedLayer::RenewVariables() {
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    const int64_t begin = std::exchange(copy.stale_begin, 0), end = std::exchange(copy.stale_end, 0);
    if (begin == end) continue;
    Send(bound_[i].value + begin, copy.value.as<float>() + begin,
         static_cast<size_t>(end - begin) * sizeof(float));
    layer_->ParametersChanged(static_cast<int>(i), begin, end);
  }
}

LayerMemory PlacedLayer::MemoryThere() const {
  return {.x = x_.data(), .y = y_.data(), .saved = saved_.data(), .scratch = scratch_.data()};
}

void PlacedLayer::Forward(const Pass& pass, const LayerMemory& memory) {
  RenewVariables();
  Send(memory.x, x_.data(), InputBytes(pass.n));
  layer_->Forward(pass, MemoryThere());
  Fetch(y_.data(), memory.y, OutputBytes(pass.n, output_type()));
}

void PlacedLayer::Backward(const Pass& pass, const LayerMemory& /*memory*/, void* dy, void* dx) {
  // What Forward brought and made is still there.
  Send(dy, dy_.data(), OutputBytes(pass.n, output_gradient_type()));
  layer_->Backward(pass, MemoryThere(), dy_.data(), dx == nullptr ? nullptr : dx_.data());
  for (size_t i = 0; i < copies_.size(); ++i) {
    Fetch(copies_[i].gradient.data(), bound_[i].gradient, copies_[i].gradient.bytes());
  }
  if (dx != nullptr) Fetch(dx_.data(), dx, InputBytes(pass.n));
}

}  // namespace lockstep::trainer
