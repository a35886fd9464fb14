#include "trainer/data/source.h"

#include <cstring>

#include "trainer/data/block.h"
#include "trainer/data/readers.h"
#include "trainer/error.h"

namespace lockstep::trainer::data {

std::unique_ptr<Source> Source::Open(const SourceOptions& options) {
  if (options.validation_samples < 0 || options.classes < 0 || options.samples < 0 ||
      options.test_samples < 0) {
    throw BadData("data: numbers of samples and classes must not be negative");
  }
  if (options.path.empty() && options.format != Format::kDigits) {
    throw BadData("data: the path is empty; only Digits, which are generated, have none");
  }
  switch (options.format) {
    case Format::kIdx:
      return OpenIdx(options);
    case Format::kCifar10:
      return OpenCifar10(options);
    case Format::kCsv:
      return OpenCsv(options);
    case Format::kDigits:
      return OpenDigits(options);
  }
  throw BadData("data: unknown format");
}

void Source::LoadSlice(std::span<std::byte> block, int64_t part, int64_t parts) {
  if (block.size() < plan_.block_bytes())
    throw BadData("data: the block given is too small for the data set");
  if (reinterpret_cast<uintptr_t>(block.data()) % 64 != 0)
    throw BadData("data: the block given is not aligned to 64");
  if (part < 0 || part >= parts) throw BadData("data: there is no such part");
  if (part > 0 && !divisible()) return;
  if (part == 0) std::memset(block.data(), 0, sizeof(BlockHeader));
  Fill({block.data() + plan_.sample_offset(), block.data() + plan_.target_offset()}, part, parts);
  if (part == 0) WriteBlockHeader(plan_, block);
}

void FinishPlan(const SourceOptions& options, const std::string& name, DatasetPlan* plan) {
  if (options.validation_samples >= plan->training) {
    throw BadData(name + ": " + std::to_string(options.validation_samples) +
                  " samples for validation, out of " + std::to_string(plan->training) +
                  " for training: at least one must be left to train on");
  }
  plan->validation = options.validation_samples;
  plan->training -= options.validation_samples;
  const size_t bytes = plan->block_bytes();
  if (bytes > options.memory_limit) {
    throw BadData(name + ": needs " + std::to_string(bytes) + " bytes of memory, and the limit is " +
                  std::to_string(options.memory_limit));
  }
}

void StoreTarget(const DatasetPlan& plan, int32_t label, std::byte* targets, int64_t index) {
  const float value = static_cast<float>(label);
  const void* stored = plan.target_type == TargetType::kLabel ? static_cast<const void*>(&label) : &value;
  std::memcpy(targets + static_cast<size_t>(index) * sizeof label, stored, sizeof label);
}

}  // namespace lockstep::trainer::data
