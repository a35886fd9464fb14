"""lockstep.torch.watch(optimizer): every optimizer.step() is a step of the job."""

from . import Progress, resumed


class Watch:
    """What watch() returns. Tell it the loss with `watch.loss = loss`: a tensor stays on its device until it is written."""

    def __init__(self, optimizer, start=0, samples=0, total_steps=None):
        self.step, self.loss, self.epoch = start, None, None
        self._samples, self._total, self._progress = samples, total_steps, Progress()
        if start:
            resumed(start)
        self._hook = optimizer.register_step_post_hook(self._stepped)

    def _stepped(self, optimizer, _arguments, _keywords):
        self.step += 1
        loss = self.loss
        self._progress.step(self.step, None if loss is None else lambda: float(loss.detach()), self._samples, self.epoch, self._total,
                            optimizer.param_groups[0].get("lr"))
        if self.step == self._total:
            self._progress.flush()

    def close(self):
        """Writes what is not written yet, and takes the hook away."""
        self._hook.remove()
        self._progress.flush()


def watch(optimizer, start=0, samples=0, total_steps=None):
    """`start`: steps that a checkpoint brought back; `samples`: of a step, over all ranks."""
    return Watch(optimizer, start, samples, total_steps)
