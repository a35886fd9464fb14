"""The MNIST job in PyTorch, eager with fused Adam; under torchrun with DistributedDataParallel over Gloo.

Prints one line: images/s of the second epoch and the test accuracy.
"""

import argparse
import os
import time

import torch

import mnist_arrays


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))

    images, labels, test_images, test_labels = map(torch.from_numpy, mnist_arrays.load(arguments.data))
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256),
                                torch.nn.ReLU(), torch.nn.Linear(256, 10))
    if world > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss_function = torch.nn.CrossEntropyLoss()
    batch = 256 // world
    for epoch in range(2):
        order = torch.randperm(50000, generator=torch.Generator().manual_seed(epoch))[rank::world]
        start = time.perf_counter()
        for first in range(0, len(order), batch):
            picked = order[first:first + batch]
            optimizer.zero_grad()
            loss_function(model(images[picked]), labels[picked]).backward()
            optimizer.step()
        seconds = time.perf_counter() - start
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    if rank == 0:
        print(f"images/s {50000 / seconds:.0f} accuracy {accuracy:.4f}")
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
