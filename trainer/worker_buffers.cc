#include "trainer/worker_buffers.h"

#include <cstring>

#include "trainer/backend/device_backend.h"

namespace lockstep::trainer {
namespace {

size_t Bytes(const Model& model) { return static_cast<size_t>(model.layout().total) * sizeof(float); }

}  // namespace

WorkerBuffers::WorkerBuffers(Model& model, const Model& served, Backend& backend)
    : model_(model),
      served_(served),
      backend_(backend),
      parameters_(ZeroedHostBuffer(Bytes(served))),
      gradients_(ZeroedHostBuffer(Bytes(served))) {
  auto* const device = dynamic_cast<DeviceBackend*>(&backend);
  if (device == nullptr) {
    model.Bind(parameters_.span<float>(), gradients_.span<float>());
    return;
  }
  for (Buffer* buffer : {&own_parameters_, &own_gradients_}) {
    *buffer = Buffer(device->allocator(), Bytes(model));
    device->Zero(buffer->data(), buffer->bytes());
  }
  passage_ = Buffer(device->pinned(), Bytes(model));
  std::memset(passage_.data(), 0, passage_.bytes());
  canonical_.resize(static_cast<size_t>(model.canonical_size()));
  model.Bind(own_parameters_.span<float>(), own_gradients_.span<float>());
}

void WorkerBuffers::ParametersCame() {
  if (own_parameters_.data() != nullptr) {
    Convert(served_, parameters_.as<float>(), model_, passage_.as<float>());
    backend_.Upload(own_parameters_.data(), passage_.data(), passage_.bytes());
  }
  model_.ParametersChanged(0, model_.layout().total);
}

// (What lies between variables stays zero on both sides.)
std::span<const float> WorkerBuffers::TakeGradients() {
  if (own_gradients_.data() != nullptr) {
    backend_.Download(passage_.data(), own_gradients_.data(), passage_.bytes());
    Convert(model_, passage_.as<float>(), served_, gradients_.as<float>());
  }
  return gradients_.span<float>();
}

void WorkerBuffers::Convert(const Model& from, const float* flat, const Model& to, float* to_flat) {
  from.ExportCanonical(flat, canonical_);
  to.ImportCanonical(canonical_, to_flat);
}

}  // namespace lockstep::trainer
