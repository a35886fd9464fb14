"""As TensorFlow's tutorial "Multi-worker training with Keras": MultiWorkerMirroredStrategy, BackupAndRestore.

Keras 3 has no MultiWorkerMirroredStrategy: the strategy wants Keras 2, which is tf_keras by now.
"""

import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import tf_keras as keras

import lockstep.keras

EPOCHS, STEPS, BATCH = 4, 30, 64


def main(folder):
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING))
    task = strategy.cluster_resolver.task_id
    numbers = np.random.default_rng(7)
    classes = numbers.normal(size=(4, 32)).astype("float32")
    labels = numbers.integers(4, size=STEPS * BATCH)
    images = classes[labels] + 0.5 * numbers.normal(size=(STEPS * BATCH, 32)).astype("float32")
    samples = tf.data.Dataset.from_tensor_slices((images, labels)).batch(BATCH).repeat()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)])
        model.compile(optimizer=keras.optimizers.SGD(0.05), metrics=["accuracy"],
                      loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    backup = os.path.join(folder, "backup")  # the same for all: the callback keeps what the others write apart

    class Say(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            done = int(self.model.optimizer.iterations.numpy())
            if done:
                print(f"rank {task} resumes after step {done}", flush=True)

    history = model.fit(samples, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=2, callbacks=[
        keras.callbacks.BackupAndRestore(backup, save_freq=10), Say(), lockstep.keras.Progress(BATCH)])
    print(f"rank {task} done, loss {history.history['loss'][-1]:.4f}", flush=True)


main(sys.argv[1])
