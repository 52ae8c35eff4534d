"""Started by PyTorch's torchrun (scripts/parity): its agent's store speaks PyTorch's protocol, ours meets elsewhere."""

import os

import torch
import torch.distributed as dist

assert "rushlight" in torch.__file__
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
assert (rank, size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) and size > 1
x = torch.full((1003,), rank + 1.0)
dist.all_reduce(x)
assert x.eq(size * (size + 1) / 2).all()
dist.destroy_process_group()
print(f"rank {rank} of {size}: torchrun started Rushlight")
