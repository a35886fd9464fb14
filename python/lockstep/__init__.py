"""Tells the launcher `lockstep run` how far this program is. Without that launcher every function does nothing.

    import lockstep
    for step, batch in enumerate(batches, 1):
        loss = train(batch)
        lockstep.report(step=step, total_steps=len(batches), samples=len(batch), loss=loss)

What each key means: docs/contract.md of Lockstep, "Events". In a job of several processes each may report; the job's
step, samples and loss are those of rank 0, so `samples` is what all ranks took together. Safe in several threads.
"""

import json
import math
import os
import stat
import time

_INTERVAL = 0.1  # seconds between two lines: steps that are quicker share one


def _pipe():
    """The events pipe; None without the launcher, and in a child to which only the variable came down."""
    try:
        fd = int(os.environ["LOCKSTEP_EVENTS_FD"])
        return fd if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
    except (KeyError, ValueError, OSError):
        return None


def event(kind, **keys):
    """Writes one event; keys that are None, or numbers that are not finite, are left out."""
    if _fd is None:
        return
    told = {"event": kind}
    for key, value in keys.items():
        if value is None or isinstance(value, float) and not math.isfinite(value):
            continue
        told[key] = value
    line = (json.dumps(told) + "\n").encode()
    try:
        while line:  # the launcher reads all the time; a full pipe is waited for
            line = line[os.write(_fd, line):]
    except OSError:
        pass  # it is gone, and so will this process be


class Progress:
    """Puts quick steps together, so that reporting each costs next to nothing. `loss` may be a function, which is
    called only when a line is written: a tensor need not leave its device for every step."""

    def __init__(self):
        self._written = None
        self._steps = self._samples = 0
        self._pending = None

    def step(self, step, loss=None, samples=0, epoch=None, total_steps=None, learning_rate=None):
        self._steps += 1
        self._samples += samples
        self._pending = (step, loss, epoch, total_steps, learning_rate)
        if self._written is None or time.monotonic() - self._written >= _INTERVAL:
            self.flush()

    def flush(self):
        """Writes what is not written yet: at the end, and before something that takes long."""
        if self._pending is None:
            return
        step, loss, epoch, total_steps, learning_rate = self._pending
        now = time.monotonic()
        event("step", step=int(step), steps=self._steps, samples=int(self._samples), epoch=epoch, total_steps=total_steps,
              loss=_number(loss), learning_rate=_number(learning_rate),
              seconds=0.0 if self._written is None else now - self._written)  # how long the first took is not known
        self._written = now
        self._steps = self._samples = 0
        self._pending = None


def _number(value):
    if callable(value):
        value = value()
    return None if value is None else float(value)


def report(step, loss=None, samples=0, epoch=None, total_steps=None, learning_rate=None):
    """A step is done: the `step`-th, from 1 on, over all epochs. `loss` may be anything that float() takes."""
    _progress.step(step, loss, samples, epoch, total_steps, learning_rate)
    if step == total_steps:
        _progress.flush()


def phase(name):
    """Busy with something that takes no steps: "Initializing", "Evaluating", "Checkpointing"; then "Training"."""
    _progress.flush()
    event("phase", phase=name)


def resumed(step):
    """Goes on after that step, from a checkpoint."""
    event("resumed", step=int(step))


def checkpoint(step, path, seconds=0.0):
    """A checkpoint is written."""
    _progress.flush()
    event("checkpoint", step=int(step), path=str(path), seconds=float(seconds))


def evaluation(loss, accuracy=None, epoch=0, split="validation", seconds=0.0):
    """A pass over the samples of `split` ("validation" or "test") is done."""
    _progress.flush()
    event("evaluation", split=split, epoch=int(epoch), loss=float(loss), accuracy=_number(accuracy), seconds=float(seconds))


_fd = _pipe()
_progress = Progress()
