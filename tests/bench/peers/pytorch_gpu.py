"""A training step in PyTorch on one GPU. Prints one line: microseconds a step.

`mnist`: 784-256-256-10, Float32, Adam, batch 256, the data set on the device. `dense`: layers of one width,
BFloat16 autocast, SGD. With --compile: torch.compile with CUDA graphs (mode "reduce-overhead").
"""

import argparse
import time

import torch


def mnist_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                               torch.nn.Linear(256, 10))


def dense_model(width: int, layers: int) -> torch.nn.Module:
    parts = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["mnist", "dense"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda")
    if arguments.job == "mnist":
        batch, steps = 256, arguments.steps or 2000
        model = mnist_model().to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        images = torch.rand(50000, 784, device=device)
        labels = torch.randint(0, 10, (50000,), device=device)
        loss_function = torch.nn.CrossEntropyLoss()
        autocast = torch.autocast("cuda", enabled=False)
    else:
        batch, steps = 8192, arguments.steps or 20
        model = dense_model(arguments.width, arguments.layers).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
        images = torch.rand(batch, arguments.width, device=device)
        labels = torch.rand(batch, arguments.width, device=device)
        loss_function = torch.nn.MSELoss()
        autocast = torch.autocast("cuda", dtype=torch.bfloat16)

    def forward_backward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with autocast:
            loss = loss_function(model(inputs), targets)
        loss.backward()
        return loss

    step = torch.compile(forward_backward, mode="reduce-overhead") if arguments.compile else forward_backward
    order = torch.randperm(len(images), device=device)

    def run(count: int) -> None:
        for i in range(count):
            first = i * batch % max(len(images) - batch + 1, 1)
            if arguments.job == "mnist":
                picked = order[first:first + batch]
                inputs, targets = images[picked], labels[picked]
            else:
                inputs, targets = images, labels
            optimizer.zero_grad(set_to_none=not arguments.compile)
            step(inputs, targets)
            optimizer.step()

    run(10 if arguments.job == "dense" else 200)
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(steps)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / steps)
    print(f"microseconds {best * 1e6:.2f}")


if __name__ == "__main__":
    main()
