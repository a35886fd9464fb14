#pragma once

#include <array>
#include <string_view>

#include "launcher/spec/training_job.h"

// The manifest's words for the enumerations, in the order of their declaration.
namespace lockstep::spec {

template <typename E>
inline constexpr auto kNames = nullptr;

using Word = std::string_view;
template <>
inline constexpr std::array kNames<DeviceType> = {Word("Auto"), Word("GPU"), Word("CPU"), Word("TPU")};
template <>
inline constexpr std::array kNames<Visibility> = {Word("PerProcess"), Word("PerReplica")};
template <>
inline constexpr std::array kNames<MemoryPolicy> = {Word("Growth"), Word("Preallocate"), Word("Limit"),
                                                    Word("Fraction")};
template <>
inline constexpr std::array kNames<MemoryEnforcement> = {Word("None"), Word("MPS")};
template <>
inline constexpr std::array kNames<StrategyType> = {Word("OneDevice"),           Word("Mirrored"),
                                                    Word("MultiWorkerMirrored"), Word("ParameterServer"),
                                                    Word("CentralStorage"),      Word("Pipeline")};
template <>
inline constexpr std::array kNames<CrossDeviceOps> = {
    Word("Auto"),         Word("NCCL"), Word("HierarchicalCopy"), Word("ReductionToOneDevice"),
    Word("SharedMemory"), Word("Gloo")};
template <>
inline constexpr std::array kNames<VariablePlacement> = {Word("Auto"), Word("CPU"), Word("RoundRobin"),
                                                         Word("LeastLoaded")};
template <>
inline constexpr std::array kNames<Shard> = {Word("None"), Word("Optimizer"), Word("Gradients")};
template <>
inline constexpr std::array kNames<PipelineSchedule> = {Word("GPipe"), Word("OneForwardOneBackward")};
template <>
inline constexpr std::array kNames<Scaling> = {Word("KeepGlobalBatch"), Word("Linear")};
template <>
inline constexpr std::array kNames<DataFormat> = {Word("Digits"), Word("IDX"), Word("CIFAR10"), Word("CSV")};
template <>
inline constexpr std::array kNames<Activation> = {Word("None"), Word("ReLU")};
template <>
inline constexpr std::array kNames<Loss> = {Word("SparseCategoricalCrossentropy"), Word("MeanSquaredError")};
template <>
inline constexpr std::array kNames<Metric> = {Word("Accuracy")};
template <>
inline constexpr std::array kNames<OptimizerType> = {Word("SGD"), Word("Adam")};
template <>
inline constexpr std::array kNames<Precision> = {Word("Float32"), Word("TF32"), Word("BFloat16")};
template <>
inline constexpr std::array kNames<Framework> = {Word("None"), Word("TensorFlow"), Word("PyTorch"),
                                                 Word("JAX"),  Word("Horovod"),    Word("MPI")};
template <>
inline constexpr std::array kNames<ExitAction> = {Word("Restart"), Word("Fail"), Word("Ignore")};
template <>
inline constexpr std::array kNames<CleanPodPolicy> = {Word("None"), Word("Running"), Word("All")};

// "MultiWorkerMirrored".
template <typename E>
constexpr std::string_view Name(E value) {
  return kNames<E>[static_cast<size_t>(value)];
}

// What may stand in trainer.model.layers[].type, and in kernelInitializer. Dense is the only layer that can
// be trained so far; the others are known so that they are refused by name.
inline constexpr std::array kLayerTypes = {Word("Dense"),
                                           Word("Conv2D"),
                                           Word("MaxPool2D"),
                                           Word("AveragePool2D"),
                                           Word("LocalResponseNormalization"),
                                           Word("BatchNormalization"),
                                           Word("Dropout"),
                                           Word("Flatten"),
                                           Word("GlobalAveragePool2D"),
                                           Word("Embedding"),
                                           Word("LayerNormalization")};
inline constexpr std::array kInitializers = {Word("GlorotUniform"), Word("Zeros")};
inline constexpr std::array kRoles = {Word("worker"), Word("ps"), Word("evaluator")};

}  // namespace lockstep::spec
