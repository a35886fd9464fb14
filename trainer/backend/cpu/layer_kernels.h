#pragma once

#include <memory>

#include "trainer/backend/cpu/context.h"
#include "trainer/backend/layer_kernels.h"

// The kernels of layers on the processor. The context outlives them.
namespace lockstep::trainer::cpu {

std::unique_ptr<ProductKernel> MakeConv2D(const Conv2DOptions& options, Context& context);
std::unique_ptr<FunctionKernel> MakePool(const PoolOptions& options, Context& context);
std::unique_ptr<FunctionKernel> MakeGlobalAveragePool(const GlobalAveragePoolOptions& options,
                                                      Context& context);
std::unique_ptr<FunctionKernel> MakeLocalResponse(const LocalResponseOptions& options, Context& context);
std::unique_ptr<FunctionKernel> MakeActivation(const ActivationOptions& options, Context& context);
std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(const BatchNormalizationOptions& options,
                                                                 Context& context);
std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options, Context& context);
std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options);
std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features, Context& context);

}  // namespace lockstep::trainer::cpu
