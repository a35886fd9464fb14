"""The training jobs of the e2e tests, and what they print."""

import json
import re


def training_job(replicas: int, processes: int, epochs: int = 1, http: dict | None = None) -> str:
    """A manifest of a job that learns generated digits; its result depends on neither `replicas` nor `processes`."""
    return json.dumps({
        "apiVersion": "lockstep.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
        "spec": {
            "replicas": replicas, "processesPerReplica": processes,
            "strategy": {"type": "MultiWorkerMirrored" if replicas > 1 else "Mirrored"},
            "trainer": {
                "data": {"format": "Digits", "validationSamples": 2000},
                "model": {"layers": [{"type": "Dense", "units": 64, "activation": "ReLU"}, {"type": "Dense", "units": 10}],
                          "loss": "SparseCategoricalCrossentropy", "metrics": ["Accuracy"]},
                "optimizer": {"type": "Adam", "learningRate": 0.002}, "batchSize": 256, "epochs": epochs, "seed": 1,
            },
            "http": http or {},
        }})


def printed_result(log: str) -> tuple:
    """Loss and accuracy on the test samples, which rank 0 prints at the end."""
    match = re.search(r"test: loss ([0-9.]+), accuracy ([0-9.]+)", log)
    if match is None:
        raise AssertionError(f"no result in the log:\n{log}")
    return tuple(map(float, match.groups()))
