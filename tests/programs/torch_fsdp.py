"""FSDP2 over Gloo: parameters, gradients and the optimizer's state in shards, a sharded checkpoint every 10 steps."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import lockstep.torch

STEPS = 40


def main(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step, newest = 0, os.path.join(folder, "newest")
    if os.path.exists(newest):
        with open(newest, encoding="utf-8") as file:
            step = int(file.read())
        # (A new optimizer has no state to load into before its first step.)
        weights, state = get_state_dict(model, optimizer)
        kept = {"model": weights, "optimizer": state}
        dcp.load(kept, checkpoint_id=os.path.join(folder, str(step)))
        set_state_dict(model, optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"])
        print(f"rank {rank} resumes after step {step}", flush=True)
    watch = lockstep.torch.watch(optimizer, start=step, samples=64 * dist.get_world_size(), total_steps=STEPS)
    classes = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    while step < STEPS:
        generator = torch.Generator().manual_seed(1000 * step + rank)
        labels = torch.randint(4, (64,), generator=generator)
        images = classes[labels] + 0.5 * torch.randn(64, 32, generator=generator)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        watch.loss = loss
        optimizer.step()
        step += 1
        if step % 10 == 0:
            weights, state = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": state}, checkpoint_id=os.path.join(folder, str(step)))
            if rank == 0:
                with open(newest + ".new", "w", encoding="utf-8") as file:
                    file.write(str(step))
                os.replace(newest + ".new", newest)
            dist.barrier()
    print(f"rank {rank} done, loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main(sys.argv[1])
