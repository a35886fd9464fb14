"""Trainer(callbacks=[lockstep.lightning.Progress()]): every step, every validation."""

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from . import Progress as Steps
from . import evaluation, phase


class Progress(Callback):
    """`batch_size`: samples of a step over all processes, for throughput."""

    def __init__(self, batch_size: int = 0):
        self._batch_size, self._steps = batch_size, Steps()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        total = trainer.estimated_stepping_batches
        self._steps.step(trainer.global_step, None if loss is None else lambda: float(loss.detach()), self._batch_size,
                         trainer.current_epoch, int(total) if 0 < total < float("inf") else None)

    def on_validation_start(self, trainer, module):
        self._steps.flush()
        phase("Evaluating")

    def on_validation_end(self, trainer, module):
        metrics = trainer.callback_metrics
        if "val_loss" in metrics:
            evaluation(float(metrics["val_loss"]), metrics.get("val_acc"), trainer.current_epoch)
        phase("Training")

    def on_train_end(self, trainer, module):
        self._steps.flush()
