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


def run(name, loss, optimizer, l2):
    model = build(loss, l2)
    cross_entropy = loss == "cross_entropy"
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True) if cross_entropy else "mse",
    )
    x = wave(SAMPLES * FEATURES, 1.3, 1.0).reshape(SAMPLES, FEATURES)
    y = np.arange(SAMPLES) % UNITS[-1] if cross_entropy else wave(SAMPLES * UNITS[-1], 2.1, 1.0).reshape(SAMPLES, -1)
    losses = []
    for _ in range(STEPS):
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x, y)))
    print(name, ", ".join(f"{value:.7f}" for value in losses))


print("keras", keras.__version__, "jax", jax.__version__)
run("Adam", "cross_entropy", keras.optimizers.Adam(0.01), 0)
run("AdamL2", "cross_entropy", keras.optimizers.Adam(0.01), 0.01)
run("Sgd", "mse", keras.optimizers.SGD(0.1), 1e-4)
run("Momentum", "mse", keras.optimizers.SGD(0.1, momentum=0.9), 0)
run("Nesterov", "cross_entropy", keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True), 0.01)
