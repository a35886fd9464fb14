#pragma once

#include "launcher/spec/fields.h"

// The fields of Lockstep's own trainer. See fields.h.
namespace lockstep::spec {

template <class V>
void Describe(V& field, Data& data) {
  field(
      "format", data.format,
      {.doc =
           "Where the samples come from: `Digits` are 28 × 28 images of digits that the trainer draws "
           "itself, "
           "always the same ones; `IDX` is MNIST's format, plain or .gz; `CIFAR10` its binary version; `CSV` "
           "numbers in columns, the label last. A first line of a CSV file without any number is a header."});
  const auto digits = If("format", data.format, {DataFormat::kDigits});
  field("path", data.path,
        {.doc = "A folder with the files under their usual names (IDX, CIFAR10), a file (CSV), or a folder "
                "with train.csv "
                "and, if there is a test, test.csv. A relative path is relative to the folder that "
                "`lockstep` is started "
                "in. Required but for Digits.",
         .max_size = kMaxPath},
        If("format", data.format, {DataFormat::kIdx, DataFormat::kCifar10, DataFormat::kCsv}));
  field("samples", data.samples,
        {.doc = "How many training samples to draw, the validation samples among them.",
         .or_else = "50000",
         .min = 1,
         .max = 10'000'000},
        digits);
  field("testSamples", data.test_samples,
        {.doc = "How many test samples to draw.", .or_else = "10000", .min = 1, .max = 10'000'000}, digits);
  field("validationSamples", data.validation_samples,
        {.doc = "How many samples are taken off the end of the training samples, to validate on after every "
                "epoch.",
         .min = 0,
         .max = 1e12});
}

struct Regularizer {
  double* l2;
};

template <class V>
void Describe(V& field, Regularizer& regularizer) {
  field("l2", *regularizer.l2,
        {.doc = "Adds `l2 * sum(kernel²)` to the loss, as Keras does.",
         .required = true,
         .min = 0,
         .max = 1e6});
}

template <class V>
void Describe(V& field, Layer& layer) {
  field(
      "type", layer.type,
      {.doc =
           "The kind of layer. `Dense` is what this version trains; the fields of the others come with them.",
       .required = true,
       .words = kLayerTypes});
  const When dense{.holds = layer.type.empty() || layer.type == "Dense", .field = "type", .words = {"Dense"}};
  field("name", layer.name,
        {.doc = "The layer's name in checkpoints and placement rules.",
         .or_else = "as in Keras: dense, dense_1, …",
         .max_size = 100,
         .pattern = "^[A-Za-z0-9][A-Za-z0-9_./-]*$",
         .shape = "a layer's name (letters, digits, _, ., / and -)"});
  field("units", layer.units, {.doc = "The number of outputs. Required.", .min = 1, .max = 1 << 24}, dense);
  field("activation", layer.activation, {.doc = "What is applied to the outputs."}, dense);
  field("useBias", layer.use_bias, {.doc = "Whether a bias is added."}, dense);
  field("kernelInitializer", layer.kernel_initializer,
        {.doc = "How the weights begin. Biases begin at zero.", .words = kInitializers}, dense);
  Regularizer regularizer{&layer.kernel_l2};
  field("kernelRegularizer", regularizer, {.doc = "A penalty on large weights.", .or_else = "none"},
        {.holds = dense.holds && field.Wants(layer.kernel_l2 != 0),
         .field = dense.field,
         .words = dense.words});
}

template <class V>
void Describe(V& field, Model& model) {
  field("layers", model.layers,
        {.doc = "The layers, from the input to the output.",
         .required = true,
         .min_items = 1,
         .max_items = 256});
  field("loss", model.loss,
        {.doc = "What is minimised. `SparseCategoricalCrossentropy` takes the last layer's outputs as logits "
                "and labels "
                "as class numbers; `MeanSquaredError` compares one output with a number."});
  field("metrics", model.metrics,
        {.doc = "What is measured beside the loss.", .or_else = "nothing", .distinct = true});
}

template <class V>
void Describe(V& field, Optimizer& optimizer) {
  field("type", optimizer.type, {.doc = "The rule that updates the weights; defaults are Keras'."});
  const auto sgd = If("type", optimizer.type, {OptimizerType::kSgd});
  const auto adam = If("type", optimizer.type, {OptimizerType::kAdam});
  field("learningRate", optimizer.learning_rate,
        {.doc = "The size of a step.",
         .or_else = "0.01 for SGD, 0.001 for Adam",
         .min = 0,
         .max = 1e6,
         .above_min = true});
  field("momentum", optimizer.momentum,
        {.doc = "How much of the last step is kept.", .min = 0, .max = 1, .below_max = true}, sgd);
  field("nesterov", optimizer.nesterov, {.doc = "Whether the momentum is Nesterov's."}, sgd);
  field("beta1", optimizer.beta1,
        {.doc = "Decay of the mean of the gradients.", .min = 0, .max = 1, .below_max = true}, adam);
  field("beta2", optimizer.beta2,
        {.doc = "Decay of the mean of their squares.", .min = 0, .max = 1, .below_max = true}, adam);
  field("epsilon", optimizer.epsilon,
        {.doc = "Keeps the division by the root of that mean finite.", .min = 0, .max = 1, .above_min = true},
        adam);
}

template <class V>
void Describe(V& field, Checkpoint& checkpoint) {
  field("directory", checkpoint.directory,
        {.doc = "The folder for checkpoints; made if it is not there. A job that finds a checkpoint of its "
                "own in it "
                "goes on from there.",
         .required = true,
         .max_size = kMaxPath});
  field("every", checkpoint.every,
        {.doc = "Steps from one checkpoint to the next; 0 is one at the end of every epoch.",
         .min = 0,
         .max = 1e12});
  field("keep", checkpoint.keep,
        {.doc = "How many are kept; older ones are deleted.", .min = 1, .max = 1000});
}

template <class V>
void Describe(V& field, Trainer& trainer) {
  field("data", trainer.data, {.doc = "The samples."});
  field("model", trainer.model, {.doc = "The network.", .required = true});
  field("optimizer", trainer.optimizer, {.doc = "How the weights are updated."});
  field("batchSize", trainer.batch_size,
        {.doc = "Samples in a step, over all processes together. The number of processes must divide it; "
                "only the last "
                "batch of an epoch may be smaller.",
         .min = 1,
         .max = 1 << 24});
  field("epochs", trainer.epochs, {.doc = "How often every sample is used.", .min = 1, .max = 1'000'000});
  field("seed", trainer.seed,
        {.doc = "What all randomness is derived from. The same seed and number of processes give the same "
                "weights, bit "
                "for bit.",
         .min = 0});
  field("precision", trainer.precision,
        {.doc = "What is computed with. `BFloat16` keeps float32 master weights."});
  field("checkpoint", trainer.checkpoint,
        {.doc = "Where to keep the state of the training.", .or_else = "nowhere"});
}

}  // namespace lockstep::spec
