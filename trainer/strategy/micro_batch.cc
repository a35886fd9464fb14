#include "trainer/strategy/micro_batch.h"

#include <algorithm>
#include <cstddef>

#include "trainer/collectives/communicator.h"

namespace lockstep::trainer::strategy {

MicroBatch MicroBatchOf(const Model& model, const ModelBatch& share, int index, int count) {
  const collectives::Range range = collectives::PartOf(static_cast<size_t>(share.n), index, count);
  const auto skip = [&range](const void* from, size_t bytes) -> const void* {
    return static_cast<const std::byte*>(from) + range.begin * bytes;
  };
  MicroBatch part{.batch = share, .begin = static_cast<int64_t>(range.begin)};
  ModelBatch& batch = part.batch;
  batch.n = static_cast<int64_t>(range.size());
  if (!batch.keys.samples.empty()) batch.keys.samples = batch.keys.samples.subspan(range.begin, range.size());
  if (model.reads_inputs()) {
    batch.inputs = skip(share.inputs, static_cast<size_t>(model.features()) * SizeOf(model.input_type()));
  }
  if (model.has_loss()) {
    const bool values = model.loss() == LossKind::kMeanSquaredError;
    batch.labels =
        skip(share.labels, values ? static_cast<size_t>(model.outputs()) * sizeof(float) : sizeof(int32_t));
  }
  return part;
}

int CountMicroBatches(int64_t samples, int asked) {
  return static_cast<int>(std::clamp<int64_t>(samples, 0, asked));
}

}  // namespace lockstep::trainer::strategy
