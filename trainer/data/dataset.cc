#include "trainer/data/dataset.h"

#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "trainer/data/block.h"
#include "trainer/data/gather.h"
#include "trainer/error.h"

namespace lockstep::trainer::data {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kMostFeatures = int64_t{1} << 24;

size_t SizeOf(SampleType type) { return type == SampleType::kUint8 ? 1 : sizeof(float); }

size_t Add(size_t a, size_t b) {
  size_t sum;
  if (__builtin_add_overflow(a, b, &sum)) throw BadData("data set: its size does not fit into 64 bits");
  return sum;
}

size_t Multiply(size_t a, size_t b) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) throw BadData("data set: its size does not fit into 64 bits");
  return product;
}

size_t RoundUp(size_t n) { return Add(n, kAlignment - 1) / kAlignment * kAlignment; }

void Check(bool right, const char* what) {
  if (!right) throw BadData(std::string("data set: ") + what);
}

void CheckCounts(const DatasetPlan& plan) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();  // samples are numbered by uint32_t
  Check(plan.sample_type == SampleType::kUint8 || plan.sample_type == SampleType::kFloat32,
        "unknown type of samples");
  Check(plan.target_type == TargetType::kLabel || plan.target_type == TargetType::kValue,
        "unknown type of targets");
  Check(plan.features >= 1, "samples must have at least one feature");
  Check(plan.features <= kMostFeatures, "samples must have at most 16,777,216 features");
  Check(plan.channels == 0 || plan.height * plan.width * plan.channels == plan.features,
        "the images have another number of features than the samples");
  Check(plan.training >= 1 && plan.validation >= 0 && plan.test >= 0, "there must be training samples");
  Check(plan.training <= kMost && plan.validation <= kMost && plan.test <= kMost && plan.samples() <= kMost,
        "more than 4,294,967,295 samples");
  Check(plan.classes >= 0 && plan.classes <= std::numeric_limits<int32_t>::max(),
        "impossible number of classes");
}

}  // namespace

size_t DatasetPlan::sample_bytes() const { return Multiply(features, SizeOf(sample_type)); }

size_t DatasetPlan::sample_offset() const { return RoundUp(sizeof(BlockHeader)) + kAlignment; }

size_t DatasetPlan::target_offset() const {
  CheckCounts(*this);
  return RoundUp(Add(sample_offset(), Multiply(samples(), sample_bytes())));
}

size_t DatasetPlan::block_bytes() const {
  const size_t targets = target_offset();  // first: it checks the counts
  return Add(targets, Multiply(samples(), sizeof(int32_t)));
}

void WriteBlockHeader(const DatasetPlan& plan, std::span<std::byte> block) {
  BlockHeader header;
  header.plan = plan;
  header.block_bytes = plan.block_bytes();
  std::memcpy(block.data(), &header, sizeof header);
}

DatasetView DatasetView::FromBlock(std::span<const std::byte> block) {
  Check(reinterpret_cast<uintptr_t>(block.data()) % kAlignment == 0, "a block must be aligned to 64 bytes");
  BlockHeader header;
  Check(block.size() >= sizeof header, "a block is shorter than its header");
  std::memcpy(&header, block.data(), sizeof header);
  Check(std::memcmp(header.magic, kBlockMagic, sizeof kBlockMagic) == 0,
        "not a block, or one that is not filled yet");
  const size_t bytes = header.plan.block_bytes();
  Check(header.block_bytes == bytes, "a block's header contradicts itself");
  Check(block.size() >= bytes, "a block is shorter than its header says");
  return {header.plan, block.data() + header.plan.sample_offset(),
          block.data() + header.plan.target_offset()};
}

std::span<const std::byte> DatasetView::RawSample(int64_t index) const {
  const size_t bytes = plan_.sample_bytes();
  return {samples_ + static_cast<size_t>(index) * bytes, bytes};
}

Shape DatasetPlan::sample_shape() const {
  if (channels == 0) return {features};
  return {height, width, channels};
}

void DatasetView::Gather(std::span<const uint32_t> indices, float* out) const {
  GatherRows(samples_, plan_.sample_bytes(), plan_.features, plan_.scale, ListedRows(indices),
             BestRowConverters().ToFloat(plan_.sample_type), out);
}

void DatasetView::Gather(Range samples, float* out) const {
  GatherRows(samples_, plan_.sample_bytes(), plan_.features, plan_.scale, ConsecutiveRows(samples),
             BestRowConverters().ToFloat(plan_.sample_type), out);
}

void DatasetView::GatherBfloat16(std::span<const uint32_t> indices, uint16_t* out) const {
  GatherRows(samples_, plan_.sample_bytes(), plan_.features, plan_.scale, ListedRows(indices),
             BestRowConverters().ToBfloat16(plan_.sample_type), out);
}

void DatasetView::GatherBfloat16(Range samples, uint16_t* out) const {
  GatherRows(samples_, plan_.sample_bytes(), plan_.features, plan_.scale, ConsecutiveRows(samples),
             BestRowConverters().ToBfloat16(plan_.sample_type), out);
}

void DatasetView::GatherLabels(std::span<const uint32_t> indices, int32_t* out) const {
  Check(plan_.target_type == TargetType::kLabel, "its targets are values, not labels");
  const auto* labels = reinterpret_cast<const int32_t*>(targets_);
  for (size_t i = 0; i < indices.size(); ++i) out[i] = labels[indices[i]];
}

void DatasetView::GatherLabels(Range samples, int32_t* out) const {
  Check(plan_.target_type == TargetType::kLabel, "its targets are values, not labels");
  if (samples.count > 0)
    std::memcpy(out, targets_ + samples.first * sizeof(int32_t), samples.count * sizeof(int32_t));
}

void DatasetView::GatherValues(std::span<const uint32_t> indices, float* out) const {
  for (size_t i = 0; i < indices.size(); ++i) out[i] = ValueOf(indices[i]);
}

void DatasetView::GatherValues(Range samples, float* out) const {
  for (int64_t i = 0; i < samples.count; ++i) out[i] = ValueOf(samples.first + i);
}

float DatasetView::ValueOf(int64_t index) const {
  if (plan_.target_type == TargetType::kValue) return reinterpret_cast<const float*>(targets_)[index];
  return static_cast<float>(reinterpret_cast<const int32_t*>(targets_)[index]);
}

OwnedBlock::OwnedBlock(size_t bytes)
    : data_(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(kAlignment)))), size_(bytes) {}

void OwnedBlock::Free::operator()(std::byte* data) const {
  ::operator delete[](data, std::align_val_t(kAlignment));
}

}  // namespace lockstep::trainer::data
