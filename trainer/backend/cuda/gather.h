#pragma once

#include <cstdint>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/tensor/dtype.h"

namespace lockstep::trainer::cuda {

// Rows of a dataset, and one 4-byte target each, become a batch. All in device memory but `samples`, which
// may be pinned.
struct GatherOptions {
  const void* rows = nullptr;  // [.., features] of row_type
  const void* targets = nullptr;
  const uint32_t* samples = nullptr;  // which row comes as the i-th; null: the i-th
  int64_t n = 0;
  int64_t features = 0;
  DataType row_type = DataType::kUInt8;      // UInt8 or Float32
  DataType input_type = DataType::kFloat32;  // Float32 or BFloat16
  float scale = 1;
  bool labels_to_float = false;  // from int32; else they are copied as they are
  void* inputs = nullptr;        // [n, features]
  void* labels = nullptr;        // [n]
};

// One kernel: a value times `scale`, rounded at most once, as data::DatasetView has it.
void Gather(const GatherOptions& options, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
