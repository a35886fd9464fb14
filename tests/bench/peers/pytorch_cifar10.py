"""The CIFAR-10 models of manifests/examples in PyTorch, eager: training steps of 128 images that lie ready in memory,
with the examples' weight decay, momentum and moving average.

Prints one line: images in a second of processor time, of the median step.
"""

import argparse
import statistics
import time

import torch
from torch import nn

BATCH = 128


def towers() -> nn.Module:
    """TensorFlow's tutorial; its pools pad below and to the right."""
    def response() -> nn.Module:
        return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1)

    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), response(),
        nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), response(), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Flatten(), nn.Linear(64 * 6 * 6, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))


class Block(nn.Module):
    def __init__(self, inputs: int, filters: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, filters, 3, stride, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters))
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(inputs, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet20() -> nn.Module:
    parts = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    inputs = 16
    for filters in (16, 32, 64):
        for number in range(3):
            parts.append(Block(inputs, filters, 2 if number == 0 and filters > 16 else 1))
            inputs = filters
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=["towers", "resnet20"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    parameters, average = [], []
    if arguments.model == "towers":
        model, side = towers(), 24
        decaying = [model[9].weight, model[11].weight]
        parameters = list(model.parameters())
        average = [parameter.detach().clone() for parameter in parameters]
        others = [parameter for parameter in parameters if not any(parameter is one for one in decaying)]
        optimizer = torch.optim.SGD([{"params": decaying, "weight_decay": 0.004}, {"params": others}], lr=0.1)
    else:
        model, side = resnet20(), 32
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.rand(10 * BATCH, 3, side, side), torch.randint(0, 10, (10 * BATCH,))
    loss_function = nn.CrossEntropyLoss()
    seconds = []
    for step in range(arguments.steps + 3):
        start = time.process_time()
        first = step % 10 * BATCH
        optimizer.zero_grad()
        loss_function(model(images[first:first + BATCH]), labels[first:first + BATCH]).backward()
        optimizer.step()
        if average:
            with torch.no_grad():
                torch._foreach_lerp_(average, parameters, 1 - 0.9999)
        seconds.append(time.process_time() - start)
    print(f"images/s {BATCH / statistics.median(seconds[3:]):.0f}")


if __name__ == "__main__":
    main()
