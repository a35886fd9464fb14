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
inline constexpr std::array kNames<DeviceMap> = {Word("Balanced"), Word("Sequential")};
template <>
inline constexpr std::array kNames<Scaling> = {Word("KeepGlobalBatch"), Word("Linear")};
template <>
inline constexpr std::array kNames<DataFormat> = {Word("Digits"), Word("IDX"), Word("CIFAR10"), Word("CSV")};
template <>
inline constexpr std::array kNames<Activation> = {Word("None"), Word("ReLU"), Word("GELU"), Word("Softmax")};
template <>
inline constexpr std::array kNames<Padding> = {Word("Valid"), Word("Same")};
template <>
inline constexpr std::array kNames<Loss> = {Word("SparseCategoricalCrossentropy"), Word("MeanSquaredError")};
template <>
inline constexpr std::array kNames<Metric> = {Word("Accuracy")};
template <>
inline constexpr std::array kNames<OptimizerType> = {Word("SGD"), Word("Adam")};
template <>
inline constexpr std::array kNames<ScheduleType> = {Word("Constant"), Word("Step"), Word("Exponential"),
                                                    Word("Cosine")};
template <>
inline constexpr std::array kNames<Precision> = {Word("Float32"), Word("TF32"), Word("BFloat16")};
template <>
inline constexpr std::array kNames<Framework> = {Word("None"), Word("TensorFlow"), Word("PyTorch"),
                                                 Word("JAX"),  Word("Horovod"),    Word("MPI")};
template <>
inline constexpr std::array kNames<ExitAction> = {Word("Restart"), Word("Fail"), Word("Ignore")};
template <>
inline constexpr std::array kNames<GangScheduler> = {Word("None"), Word("Coscheduling"), Word("Volcano"),
                                                     Word("Workload")};
template <>
inline constexpr std::array kNames<CleanPodPolicy> = {Word("None"), Word("Running"), Word("All")};

// "MultiWorkerMirrored".
template <typename E>
constexpr std::string_view Name(E value) {
  return kNames<E>[static_cast<size_t>(value)];
}

// What may stand in trainer.model.layers[].type, within a Residual block and outside, and in
// kernelInitializer.
inline constexpr std::array kInnerLayerTypes = {Word("Dense"),
                                                Word("Conv2D"),
                                                Word("MaxPool2D"),
                                                Word("AveragePool2D"),
                                                Word("GlobalAveragePool2D"),
                                                Word("LocalResponseNormalization"),
                                                Word("BatchNormalization"),
                                                Word("LayerNormalization"),
                                                Word("Activation"),
                                                Word("Dropout"),
                                                Word("Flatten"),
                                                Word("Embedding")};
inline constexpr auto kLayerTypes = [] {
  std::array<Word, kInnerLayerTypes.size() + 1> all;
  for (size_t i = 0; i < kInnerLayerTypes.size(); ++i) all[i] = kInnerLayerTypes[i];
  all.back() = Word("Residual");
  return all;
}();
inline constexpr std::array kInitializers = {
    Word("GlorotUniform"), Word("GlorotNormal"), Word("HeUniform"), Word("HeNormal"), Word("TruncatedNormal"),
    Word("RandomUniform"), Word("RandomNormal"), Word("Constant"),  Word("Zeros"),    Word("Ones")};
inline constexpr std::array kRoles = {Word("worker"), Word("chief"), Word("ps"), Word("evaluator")};

}  // namespace lockstep::spec
