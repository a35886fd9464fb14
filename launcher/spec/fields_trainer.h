#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "launcher/spec/fields.h"

// The fields of Lockstep's own trainer. See fields.h.
namespace lockstep::spec {

template <class V>
void Describe(V& field, Crop& crop) {
  field("height", crop.height, {.doc = "Rows of the window.", .required = true, .min = 1, .max = 4096});
  field("width", crop.width, {.doc = "Columns of the window.", .required = true, .min = 1, .max = 4096});
  field("padding", crop.padding,
        {.doc = "Zeros that are put around the image first, on each side.", .min = 0, .max = 1024});
}

template <class V>
void Describe(V& field, Contrast& contrast) {
  field("lower", contrast.lower, {.doc = "The smallest factor.", .required = true, .min = 0, .max = 1000});
  field("upper", contrast.upper, {.doc = "The largest factor.", .required = true, .min = 0, .max = 1000});
}

template <class V>
void Describe(V& field, Augmentation& augmentation) {
  field("crop", augmentation.crop,
        {.doc = "A window out of the image, which is then what the model gets: anywhere in training, in the "
                "middle "
                "in evaluation.",
         .or_else = "the whole image"});
  field("flip", augmentation.flip,
        {.doc = "In training, whether one image in two is mirrored, left and right."});
  field(
      "brightness", augmentation.brightness,
      {.doc =
           "In training, a number up to this is added to all of an image or taken away. (Images have values "
           "from 0 to 1.)",
       .min = 0,
       .max = 1000});
  field("contrast", augmentation.contrast,
        {.doc = "In training, the distances of a channel's values to their mean are multiplied by a factor.",
         .or_else = "none"});
  field("whitening", augmentation.whitening,
        {.doc = "In training and evaluation, whether each image is given mean 0 and standard deviation 1 "
                "(tf.image.per_image_standardization)."});
}

template <class V>
void Describe(V& field, Normalization& normalization) {
  field("mean", normalization.mean,
        {.doc = "Taken away from a channel's values, of 0 to 1; a number for each channel, or one for all.",
         .required = true,
         .min = -1e6,
         .max = 1e6,
         .min_items = 1,
         .max_items = 4});
  field("standardDeviation", normalization.standard_deviation,
        {.doc = "What they are then divided by.",
         .required = true,
         .min = 0,
         .max = 1e6,
         .above_min = true,
         .min_items = 1,
         .max_items = 4});
}

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
  const auto images =
      If("format", data.format, {DataFormat::kDigits, DataFormat::kIdx, DataFormat::kCifar10});
  field("augmentation", data.augmentation,
        {.doc = "What is done to images, differently in each epoch, in the order below; as in TensorFlow's "
                "CIFAR-10 "
                "tutorial. The seed, the epoch and the sample decide, whatever the number of processes. "
                "Batches are "
                "prepared by a thread while the step before them runs.",
         .or_else = "nothing"},
        images);
  field("normalization", data.normalization,
        {.doc = "Moves and scales the values of images, after the augmentation.", .or_else = "nothing"},
        images);
}

template <class V>
void Describe(V& field, InitializerOptions& options) {
  constexpr double kMost = 1e6;
  field("value", options.value, {.doc = "Of `Constant`.", .or_else = "0", .min = -kMost, .max = kMost});
  field("minimum", options.minimum,
        {.doc = "Of `RandomUniform`.", .or_else = "-0.05", .min = -kMost, .max = kMost});
  field("maximum", options.maximum,
        {.doc = "Of `RandomUniform`; not reached.", .or_else = "0.05", .min = -kMost, .max = kMost});
  field("mean", options.mean,
        {.doc = "Of `RandomNormal` and `TruncatedNormal`.", .or_else = "0", .min = -kMost, .max = kMost});
  field("standardDeviation", options.standard_deviation,
        {.doc = "Of `RandomNormal`, and of `TruncatedNormal` before it is cut at two of them.",
         .or_else = "0.05",
         .min = 0,
         .max = kMost,
         .above_min = true});
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

// Height and width of a window, or one number for both.
inline constexpr size_t kMostExtents = 2;

template <class V>
void DescribeLayer(V& field, InnerLayer& layer, std::span<const std::string_view> types) {
  field("type", layer.type,
        {.doc = "The kind of layer. They are as in Keras. Images are [height, width, channels]; `Dense` "
                "takes them as if "
                "they were flattened. `Softmax` at the end is left to SparseCategoricalCrossentropy, which "
                "takes what goes into it. `LocalResponseNormalization` is TensorFlow's.",
         .required = true,
         .words = types});
  const auto of = [&layer](std::initializer_list<std::string_view> any) {
    const bool holds = std::find(any.begin(), any.end(), layer.type) != any.end();
    return When{.holds = layer.type.empty() || holds, .field = "type", .words = any};
  };
  const When products = of({"Dense", "Conv2D"}), pools = of({"MaxPool2D", "AveragePool2D"});
  const When windows = of({"Conv2D", "MaxPool2D", "AveragePool2D"});
  const When weights = of({"Dense", "Conv2D", "Embedding"});
  const When batch = of({"BatchNormalization"}), dense = of({"Dense"}), conv = of({"Conv2D"});
  const When normalizations = of({"BatchNormalization", "LayerNormalization"});
  const When response = of({"LocalResponseNormalization"}), embedding = of({"Embedding"});
  field("name", layer.name,
        {.doc = "The layer's name in checkpoints and placement rules.",
         .or_else = "as in Keras: dense, dense_1, …",
         .max_size = 100,
         .pattern = "^[A-Za-z0-9][A-Za-z0-9_./-]*$",
         .shape = "a layer's name (letters, digits, _, ., / and -)"});
  field("units", layer.units, {.doc = "The number of outputs. Required.", .min = 1, .max = 1 << 24}, dense);
  field("filters", layer.filters, {.doc = "The number of output channels. Required.", .min = 1, .max = 65536},
        conv);
  field("kernelSize", layer.kernel_size,
        {.doc = "Height and width of the kernel, `[5, 5]`, or one number for both, `[5]`. Required.",
         .or_else = "none",
         .min = 1,
         .max = 1024,
         .min_items = 1,
         .max_items = kMostExtents},
        conv);
  field("poolSize", layer.pool_size,
        {.doc = "Height and width of the window, or one number for both.",
         .or_else = "[2, 2]",
         .min = 1,
         .max = 1024,
         .min_items = 1,
         .max_items = kMostExtents},
        pools);
  field("strides", layer.strides,
        {.doc = "How far the window moves down and to the right, or one number for both.",
         .or_else = "1; of pools poolSize",
         .min = 1,
         .max = 1024,
         .min_items = 1,
         .max_items = kMostExtents},
        windows);
  field(
      "padding", layer.padding,
      {.doc = "`Same` pads so that there are as many outputs as inputs divided by the stride, as TensorFlow "
              "pads; `Valid` does not pad."},
      windows);
  field("activation", layer.activation,
        {.doc = "What is applied to the outputs. Of `Residual`, to the sum: None or ReLU."},
        of({"Dense", "Conv2D", "BatchNormalization", "Activation", "Residual"}));
  field("useBias", layer.use_bias, {.doc = "Whether a bias is added."}, products);
  field("kernelInitializer", layer.kernel_initializer,
        {.doc =
             "How the weights begin: the distributions of Keras, Glorot's and He's by the fans of the layer.",
         .words = kInitializers},
        weights);
  field("kernelInitializerOptions", layer.kernel_initializer_options,
        {.doc = "Numbers of the initializer.", .or_else = "Keras'"}, weights);
  field("biasInitializer", layer.bias_initializer, {.doc = "How the bias begins.", .words = kInitializers},
        products);
  field("biasInitializerOptions", layer.bias_initializer_options,
        {.doc = "Numbers of the initializer.", .or_else = "Keras'"}, products);
  Regularizer regularizer{&layer.kernel_l2};
  field("kernelRegularizer", regularizer, {.doc = "A penalty on large weights.", .or_else = "none"},
        {.holds = products.holds && field.Wants(layer.kernel_l2 != 0),
         .field = products.field,
         .words = products.words});
  field(
      "synchronised", layer.synchronised,
      {.doc = "Whether a step's statistics are those of the whole batch, over all processes, and not of each "
              "process's part: then several processes train as one does. Without, the moving statistics that "
              "count are the mean of the processes'."},
      batch);
  field(
      "momentum", layer.momentum,
      {.doc = "How much of the moving statistics is kept in a step.", .min = 0, .max = 1, .below_max = true},
      batch);
  field("epsilon", layer.epsilon, {.doc = "Is added to the variance.", .min = 0, .max = 1, .above_min = true},
        normalizations);
  field("center", layer.center, {.doc = "Whether a trained offset, beta, is added."}, normalizations);
  field("scale", layer.scale, {.doc = "Whether it is multiplied by a trained factor, gamma."},
        normalizations);
  field("depthRadius", layer.depth_radius,
        {.doc = "How many channels on each side count.", .min = 0, .max = 1024}, response);
  field("bias", layer.bias,
        {.doc = "Is added to the sum of squares.", .min = 0, .max = 1e6, .above_min = true}, response);
  field("alpha", layer.alpha, {.doc = "The sum of squares is multiplied by it.", .min = 0, .max = 1e6},
        response);
  field("beta", layer.beta, {.doc = "The exponent.", .min = 0, .max = 100}, response);
  field("rate", layer.rate,
        {.doc = "The part of the values that is dropped in training. Required.",
         .min = 0,
         .max = 1,
         .below_max = true},
        of({"Dropout"}));
  field("inputDim", layer.input_dim,
        {.doc = "How many numbers there are. Required.", .min = 1, .max = 1 << 30}, embedding);
  field("outputDim", layer.output_dim,
        {.doc = "How many values each gets. Required.", .min = 1, .max = 65536}, embedding);
}

template <class V>
void Describe(V& field, InnerLayer& layer) {
  DescribeLayer(field, layer, kInnerLayerTypes);
}

template <class V>
void Describe(V& field, Layer& layer) {
  DescribeLayer(field, layer, kLayerTypes);
  const When residual{
      .holds = layer.type.empty() || layer.type == "Residual", .field = "type", .words = {"Residual"}};
  field("layers", layer.layers,
        {.doc = "What is added to the shortcut, from its input to its output. Required.",
         .or_else = "none",
         .min_items = 1,
         .max_items = 32},
        residual);
  field("shortcut", layer.shortcut,
        {.doc = "The layers that the inputs go through before they are added: a projection, where the block "
                "makes another shape than it takes.",
         .or_else = "the inputs as they are",
         .min_items = 1,
         .max_items = 32},
        residual);
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
  field("labelSmoothing", model.label_smoothing,
        {.doc = "How much of the target is spread evenly over all classes (Keras' CategoricalCrossentropy).",
         .min = 0,
         .max = 1,
         .below_max = true},
        If("loss", model.loss, {Loss::kSparseCategoricalCrossentropy}));
  field("metrics", model.metrics,
        {.doc = "What is measured beside the loss.", .or_else = "nothing", .distinct = true});
}

template <class V>
void Describe(V& field, Schedule& schedule) {
  using enum ScheduleType;
  constexpr double kSteps = 1e12;
  constexpr double kRate = 1e6;
  field(
      "type", schedule.type,
      {.doc = "The formula, Keras' in each case: `Constant`; `Step` (PiecewiseConstantDecay); `Exponential` "
              "(ExponentialDecay), `learningRate * decayRate ^ (step / decaySteps)`; `Cosine` (CosineDecay), "
              "half "
              "a cosine down to `finalLearningRate`. The step is the number of updates before."});
  const auto step = If("type", schedule.type, {kStep});
  const auto exponential = If("type", schedule.type, {kExponential});
  const auto cosine = If("type", schedule.type, {kCosine});
  field("warmUpSteps", schedule.warm_up_steps,
        {.doc =
             "For how many steps the learning rate first rises, linearly, to `learningRate`. All other steps "
             "here are counted from its end.",
         .min = 0,
         .max = kSteps});
  field("warmUpFrom", schedule.warm_up_from,
        {.doc = "The learning rate of the first step of the warm-up.", .min = 0, .max = kRate});
  field("boundaries", schedule.boundaries,
        {.doc = "Steps, ascending, after each of which another learning rate begins. Required.",
         .or_else = "none",
         .min = 0,
         .max = kSteps,
         .min_items = 1,
         .max_items = 64},
        step);
  field("learningRates", schedule.learning_rates,
        {.doc = "The learning rate after each of the boundaries. Required.",
         .or_else = "none",
         .min = 0,
         .max = kRate,
         .min_items = 1,
         .max_items = 64},
        step);
  field("decaySteps", schedule.decay_steps,
        {.doc = "In how many steps it decays. Required for Exponential.",
         .or_else = "to the end of the training",
         .min = 1,
         .max = kSteps},
        If("type", schedule.type, {kExponential, kCosine}));
  field("decayRate", schedule.decay_rate,
        {.doc = "What the learning rate is multiplied by in `decaySteps`.",
         .min = 0,
         .max = 1,
         .above_min = true},
        exponential);
  field("staircase", schedule.staircase, {.doc = "Whether it decays at once after each `decaySteps`."},
        exponential);
  field("finalLearningRate", schedule.final_learning_rate,
        {.doc = "The learning rate after `decaySteps`.", .min = 0, .max = kRate}, cosine);
}

template <class V>
void Describe(V& field, MovingAverage& average) {
  field("momentum", average.momentum,
        {.doc = "How much of the average is kept in a step: `average = momentum * average + (1 - momentum) * "
                "weight`, after the first step the weight itself (Keras' use_ema).",
         .min = 0,
         .max = 1,
         .above_min = true,
         .below_max = true});
  field("evaluate", average.evaluate, {.doc = "Whether validation and test use the average."});
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
  field("schedule", optimizer.schedule, {.doc = "How the learning rate changes from step to step."});
  field("weightDecay", optimizer.weight_decay,
        {.doc = "Decoupled weight decay: each step first takes `learningRate * weightDecay` of a kernel away "
                "from it "
                "(Keras' weight_decay, PyTorch's AdamW). Biases and normalisations do not decay.",
         .min = 0,
         .max = 1e6});
  field("clipValue", optimizer.clip_value,
        {.doc = "Every gradient is cut to at most this, up and down (Keras' clipvalue).",
         .or_else = "none",
         .min = 0,
         .max = 1e12,
         .above_min = true});
  field("globalClipNorm", optimizer.global_clip_norm,
        {.doc = "The whole gradient of the job, over all weights, is shortened to at most this norm (Keras' "
                "global_clipnorm). No weight is updated before the last gradient is known.",
         .or_else = "none",
         .min = 0,
         .max = 1e12,
         .above_min = true},
        Without("clipValue", !optimizer.clip_value));
  field("movingAverage", optimizer.moving_average,
        {.doc = "A moving average of the weights, kept beside them and in checkpoints.", .or_else = "none"});
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
  field("gradientAccumulation", trainer.gradient_accumulation,
        {.doc =
             "In how many pieces, one after the other, a process works off its part of a batch, adding their "
             "gradients up: the memory is that of a piece, the update that of the batch. (Normalisations "
             "over the "
             "batch and their statistics are of a piece.)",
         .min = 1,
         .max = 65'536});
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
