#pragma once

#include <cstdint>
#include <memory>

#include "trainer/backend/cuda/kernel_context.h"
#include "trainer/backend/layer_kernels.h"

// The kernels of layers on a GPU. What the context points at outlives them. Sums are added in an order that
// follows from the sizes alone: the same bits each time.
namespace lockstep::trainer::cuda {

std::unique_ptr<FunctionKernel> MakePool(const PoolOptions& options, const KernelContext& context);
std::unique_ptr<FunctionKernel> MakeGlobalAveragePool(const GlobalAveragePoolOptions& options,
                                                      const KernelContext& context);
std::unique_ptr<FunctionKernel> MakeLocalResponse(const LocalResponseOptions& options,
                                                  const KernelContext& context);
std::unique_ptr<FunctionKernel> MakeActivation(const ActivationOptions& options,
                                               const KernelContext& context);
std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(const BatchNormalizationOptions& options,
                                                                 const KernelContext& context);
std::unique_ptr<RowKernel> MakeLayerNormalization(const LayerNormalizationOptions& options,
                                                  const KernelContext& context);
// A number that the table does not have gives a row of NaNs, and the context's checks say so.
std::unique_ptr<RowKernel> MakeEmbedding(const EmbeddingOptions& options, const KernelContext& context);
// Its passes in training cannot be recorded: their samples' numbers are part of what is enqueued.
std::unique_ptr<DropoutKernel> MakeDropout(float rate, int64_t features, const KernelContext& context);

// Backend::Add and Backend::MaskGradient.
void Add(int64_t count, const float* a, const float* b, bool relu, float* y, const KernelContext& context);
void MaskGradient(int64_t count, const float* y, float* dy, const KernelContext& context);

}  // namespace lockstep::trainer::cuda
