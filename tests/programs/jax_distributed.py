"""jax.distributed.initialize() without arguments, gradients averaged over all processes, a checkpoint every 10 steps."""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import lockstep

STEPS, BATCH = 60, 64


def main(folder):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize()
    rank, world = jax.process_index(), jax.process_count()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    classes = np.random.default_rng(1).normal(size=(4, 32)).astype("float32")
    weights, step = np.zeros((32, 4), "float32"), 0
    checkpoint = os.path.join(folder, "checkpoint.npz")
    if os.path.exists(checkpoint):
        with np.load(checkpoint) as kept:
            weights, step = kept["weights"], int(kept["step"])
        print(f"rank {rank} resumes after step {step}", flush=True)
        lockstep.resumed(step)
    weights = jax.device_put(weights, whole)

    @jax.jit
    def train(weights, images, labels):
        def loss_of(weights):
            chosen = jnp.take_along_axis(jax.nn.log_softmax(images @ weights), labels[:, None], axis=1)
            return -jnp.mean(chosen)

        loss, gradient = jax.value_and_grad(loss_of)(weights)
        return weights - 0.1 * gradient, loss

    while step < STEPS:
        numbers = np.random.default_rng(1000 * step + rank)
        labels = numbers.integers(4, size=BATCH)
        images = classes[labels] + 0.5 * numbers.normal(size=(BATCH, 32)).astype("float32")
        weights, loss = train(weights, jax.make_array_from_process_local_data(split, images),
                              jax.make_array_from_process_local_data(split, labels))
        step += 1
        lockstep.report(step, loss, BATCH * world, total_steps=STEPS)
        if step % 10 == 0 and rank == 0:
            with open(checkpoint + ".new", "wb") as file:
                np.savez(file, weights=np.asarray(weights), step=step)
            os.replace(checkpoint + ".new", checkpoint)
    print(f"rank {rank} done, loss {float(loss):.4f}", flush=True)


main(sys.argv[1])
