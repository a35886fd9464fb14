"""As PyTorch's own tutorial of DistributedDataParallel under torchrun: gradients over Gloo, a snapshot every 10 steps."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    snapshot, step = os.path.join(folder, "snapshot.pt"), 0
    if os.path.exists(snapshot):
        kept = torch.load(snapshot, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        step = kept["step"]
        print(f"rank {rank} resumes after step {step}", flush=True)
    parallel = DistributedDataParallel(model)
    classes = torch.randn(4, 32)
    while step < STEPS:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        labels = torch.randint(4, (64,), generator=generator)
        images = classes[labels] + 0.5 * torch.randn(64, 32, generator=generator)
        loss = torch.nn.functional.cross_entropy(parallel(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
        if step % 10 == 0:
            if rank == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".new")
                os.replace(snapshot + ".new", snapshot)
            dist.barrier()
    print(f"rank {rank} done, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main(sys.argv[1])
