#include "trainer/layers/dropout.h"

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

// FNV-1a (Fowler, Noll, Vo).
uint32_t HashOf(const std::string& text) {
  uint32_t hash = 0x811C9DC5;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193;
  return hash;
}

}  // namespace

LayerFacts DropoutFacts(const LayerConfig& config, const Shape& input) {
  if (!(config.rate >= 0 && config.rate < 1)) {
    throw BadModel("layer " + config.name + ": rate is " + std::to_string(config.rate) +
                   "; it must be in [0, 1)");
  }
  return {.output = input};
}

Dropout::Dropout(const LayerConfig& config, const LayerContext& context, Backend& backend)
    : PlainLayer(config, context),
      backend_(backend),
      stream_(HashOf(context.scope + config.name)),
      kernel_(backend.MakeDropout(static_cast<float>(config.rate), outputs())),
      saved_bytes_(kernel_->saved_bytes(context.max_batch)) {}

void Dropout::Forward(const Pass& pass, const LayerMemory& memory) {
  const auto* x = static_cast<const float*>(memory.x);
  auto* y = static_cast<float*>(memory.y);
  if (!pass.training) {
    backend_.Copy(pass.n * outputs(), x, y);
    return;
  }
  if (pass.keys.samples.size() != static_cast<size_t>(pass.n)) {
    throw BadModel("layer " + name() + ": a batch of " + std::to_string(pass.n) + " samples with " +
                   std::to_string(pass.keys.samples.size()) + " numbers; Dropout needs them");
  }
  kernel_->Forward(pass.n, x, y, memory.saved,
                   {.seed = pass.keys.seed,
                    .epoch = static_cast<uint32_t>(pass.keys.epoch),
                    .stream = stream_,
                    .samples = pass.keys.samples});
}

void Dropout::Backward(const Pass& pass, const LayerMemory& memory, void* dy, void* dx) {
  if (dx == nullptr) return;
  kernel_->Backward(pass.n, memory.saved, static_cast<const float*>(dy), static_cast<float*>(dx));
}

}  // namespace lockstep::trainer
