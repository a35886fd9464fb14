"""model.fit(…, callbacks=[lockstep.keras.Progress()]): every step, every evaluation."""

import os

if os.environ.get("TF_USE_LEGACY_KERAS", "0") in ("1", "true", "True"):
    import tf_keras as keras
else:
    import keras

from . import Progress as Steps
from . import evaluation, phase


class Progress(keras.callbacks.Callback):
    """`batch_size`: samples of a step over all processes, for throughput."""

    def __init__(self, batch_size: int = 0):
        super().__init__()
        self._batch_size, self._steps, self._epoch = batch_size, Steps(), 0

    def on_train_begin(self, logs=None):
        phase("Training")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        done = self.model.optimizer.iterations  # those that a checkpoint brought back as well
        self._steps.step(int(done.numpy() if hasattr(done, "numpy") else done), (logs or {}).get("loss"), self._batch_size, self._epoch,
                         steps * epochs if steps and epochs else None)

    def on_test_begin(self, logs=None):
        self._steps.flush()
        phase("Evaluating")

    def on_test_end(self, logs=None):
        logs = logs or {}
        if "loss" in logs:
            evaluation(logs["loss"], logs.get("accuracy"), self._epoch)
        phase("Training")

    def on_train_end(self, logs=None):
        self._steps.flush()
