#pragma once

#include <memory>

#include "trainer/data/source.h"

// One function a format, for Source::Open.
namespace lockstep::trainer::data {

std::unique_ptr<Source> OpenIdx(const SourceOptions& options);
std::unique_ptr<Source> OpenCifar10(const SourceOptions& options);
std::unique_ptr<Source> OpenCsv(const SourceOptions& options);
std::unique_ptr<Source> OpenDigits(const SourceOptions& options);

// Splits the training samples of a plan (all of them in `training`) by options.validation_samples, and checks
// its size against options.memory_limit. `name` is what messages call the data.
void FinishPlan(const SourceOptions& options, const std::string& name, DatasetPlan* plan);

// Stores one label as the plan's target type.
void StoreTarget(const DatasetPlan& plan, int32_t label, std::byte* targets, int64_t index);

}  // namespace lockstep::trainer::data
