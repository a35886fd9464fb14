"""The MNIST job in Keras under tf.distribute.MirroredStrategy on logical CPU devices.

Prints one line: images/s of the second epoch and the test accuracy.
"""

import argparse
import time

import tensorflow as tf

import mnist_arrays


class Timer(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="")
    parser.add_argument("--devices", type=int, default=4)
    arguments = parser.parse_args()
    tf.keras.utils.set_random_seed(1)
    physical = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        physical, [tf.config.LogicalDeviceConfiguration() for _ in range(arguments.devices)])
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(arguments.devices)])
    images, labels, test_images, test_labels = mnist_arrays.load(arguments.data)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(256, activation="relu"),
                                     tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(10)])
        model.compile(tf.keras.optimizers.Adam(1e-3),
                      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    timer = Timer()
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(50000).batch(256).prefetch(2)
    model.fit(dataset, epochs=2, verbose=0, callbacks=[timer])
    accuracy = model.evaluate(test_images, test_labels, batch_size=1000, verbose=0)[1]
    print(f"images/s {50000 / timer.seconds:.0f} accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
