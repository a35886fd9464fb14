"""Makes the losses in golden_test.cc with Keras itself: pip install keras jax; python make_golden.py"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax

jax.config.update("jax_default_matmul_precision", "highest")

import keras
import numpy as np

FEATURES, UNITS, SAMPLES, STEPS = 6, (5, 4, 3), 8, 6


def wave(count, step, amplitude):
    """Values that need no random generator: amplitude * sin(step * (i + 1))."""
    return (amplitude * np.sin(step * (np.arange(count) + 1.0))).astype("float32")


def build(loss, l2):
    layers = [keras.Input((FEATURES,))]
    for i, units in enumerate(UNITS):
        layers.append(
            keras.layers.Dense(
                units,
                activation="relu" if i + 1 < len(UNITS) else None,
                kernel_regularizer=keras.regularizers.L2(l2) if l2 else None,
            )
        )
    model = keras.Sequential(layers)
    flat = wave(sum(int(np.prod(v.shape)) for v in model.weights), 0.7, 0.6)
    at = 0
    for variable in model.weights:
        size = int(np.prod(variable.shape))
        variable.assign(flat[at : at + size].reshape(variable.shape))
        at += size
    return model


def run(name, loss, optimizer, l2, smoothing=0):
    model = build(loss, l2)
    cross_entropy = loss == "cross_entropy"
    if cross_entropy and smoothing:
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    elif cross_entropy:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    x = wave(SAMPLES * FEATURES, 1.3, 1.0).reshape(SAMPLES, FEATURES)
    y = np.arange(SAMPLES) % UNITS[-1] if cross_entropy else wave(SAMPLES * UNITS[-1], 2.1, 1.0).reshape(SAMPLES, -1)
    if smoothing:
        y = np.eye(UNITS[-1], dtype="float32")[y]
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    losses = []
    for _ in range(STEPS):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x, y)))
    if optimizer.use_ema:
        optimizer.finalize_variable_values(model.trainable_variables)
        losses.append(float(model.test_on_batch(x, y)))
    print(name, ", ".join(f"{value:.7f}" for value in losses))


def schedule(name, rates):
    print(name, ", ".join(f"{float(rates(step)):.9f}" for step in range(12)))


schedules = keras.optimizers.schedules
print("keras", keras.__version__, "jax", jax.__version__)
run("Adam", "cross_entropy", keras.optimizers.Adam(0.01), 0)
run("AdamL2", "cross_entropy", keras.optimizers.Adam(0.01), 0.01)
run("Sgd", "mse", keras.optimizers.SGD(0.1), 1e-4)
run("Momentum", "mse", keras.optimizers.SGD(0.1, momentum=0.9), 0)
run("Nesterov", "cross_entropy", keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), 0.01)
run("AdamDecay", "cross_entropy", keras.optimizers.Adam(0.01, weight_decay=0.5), 0)
run("MomentumDecay", "mse", keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.2), 0)
run("ClipValue", "mse", keras.optimizers.SGD(0.1, clipvalue=0.05), 0.01)
run("ClipNorm", "mse", keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.4), 0.01)
run("AdamClipNorm", "cross_entropy", keras.optimizers.Adam(0.01, global_clipnorm=0.1), 0.01)
run("Average", "mse", keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7), 0)
run("Cosine", "mse", keras.optimizers.SGD(schedules.CosineDecay(0.02, 4, 0.1, warmup_target=0.1, warmup_steps=2)), 0)
run("Smoothing", "cross_entropy", keras.optimizers.Adam(0.01), 0.01, smoothing=0.1)
schedule("PiecewiseConstantDecay", schedules.PiecewiseConstantDecay([3, 7], [0.1, 0.03, 0.004]))
schedule("ExponentialDecay", schedules.ExponentialDecay(0.1, 4, 0.5))
schedule("ExponentialDecay staircase", schedules.ExponentialDecay(0.1, 4, 0.5, staircase=True))
schedule("CosineDecay", schedules.CosineDecay(0.1, 8, 0.05))
schedule("CosineDecay warm-up", schedules.CosineDecay(0.02, 6, 0.05, warmup_target=0.1, warmup_steps=4))
