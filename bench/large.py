"""A training step of a GPT that is sharded and offloaded: the time and the peak of device memory, under rushlight or PyTorch.

    rushlight run --nproc-per-node 2 python -m rushlight bench/large.py            # GPT of 1.5 billion parameters on two ranks
    torchrun --nproc-per-node 2 bench/large.py                                     # the same by PyTorch
    … bench/large.py --bf16                                                        # all state in bf16: half the memory
    … bench/large.py --layers 96 --width 5120 --heads 40                           # another size
    … bench/large.py --files /tmp/shards                                           # weights and moments in files: 4 bytes of memory a parameter, not 16

The model is made on the meta device, sharded by ``fully_shard`` with ``CPUOffloadPolicy`` and given memory after: no rank ever holds the whole. Blocks are
computed again in the backward pass. ``--no-offload`` keeps shards and states on the device. On CPUs ``--files`` is the offload: weights and moments are tensors over mapped files, of
which the system keeps in memory what fits. With DeepSpeed's front they are ``offload_param`` and ``offload_optimizer`` with the device ``nvme``.
"""

import argparse
import os
import resource
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.first_norm(x)).view(rows, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary, tokens):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


class Files:
    """Room for f32 shards in a file of each rank, which has no name and ends with the process."""

    def __init__(self, folder, parameters, each):
        self.size = each * sum(self.room(p) for p in parameters)
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 4 * self.size)
            self.whole, self.used = torch.from_file(file.name, True, self.size, dtype=torch.float32), 0

    @staticmethod
    def room(p):
        return -(-p.to_local().numel() // 1024) * 1024

    def like(self, p):
        """A tensor that is sharded as a parameter."""
        local = self.whole[self.used : self.used + p.to_local().numel()].view(p.to_local().shape)
        self.used += self.room(p)
        return DTensor.from_local(local, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 48, "width": 1600, "heads": 25, "vocabulary": 50304, "tokens": 1024, "rows": 1, "steps": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-offload", action="store_true")
    parser.add_argument("--bf16", action="store_true", help="weights, gradients and moments in bf16: 8 bytes a parameter")
    parser.add_argument("--files", metavar="FOLDER", help="a folder of a disk, for weights and moments")
    options = parser.parse_args()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo")
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    with torch.device("meta"):
        net = Gpt(options.layers, options.width, options.heads, options.vocabulary, options.tokens)
        net = net.to(torch.bfloat16) if options.bf16 else net
    sharding = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    sharding["offload_policy"] = OffloadPolicy() if options.no_offload else CPUOffloadPolicy()
    for block in (net.embedding, *net.blocks, net.head):
        fully_shard(block, **sharding)
    fully_shard(net, **sharding)
    if options.bf16 and options.files:
        parser.error("--files is of f32")
    # Weights and two moments.
    files = Files(options.files, list(net.parameters()), 3) if options.files else None
    if files is None:
        net.to_empty(device=kind if options.no_offload else "cpu")
    else:
        net._apply(files.like)
    torch.manual_seed(0)
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    for p in net.parameters() if files is not None else ():
        optimizer.state[p] = {"step": torch.tensor(0.0), "exp_avg": files.like(p), "exp_avg_sq": files.like(p)}
    count = sum(p.numel() for p in net.parameters())
    for step in range(options.steps):
        ids = torch.randint(0, options.vocabulary, (options.rows, options.tokens + 1), device=kind)
        start = time.perf_counter()
        loss = F.cross_entropy(net(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        seconds = time.perf_counter() - start
        # Of a process on CPUs: the most that was resident, or that the allocator counted where it does, without files.
        counts = kind == "cuda" or hasattr(torch.cpu, "max_memory_allocated")
        used = getattr(torch, kind).max_memory_allocated() if counts else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        total = torch.tensor([float(used)])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"step {step}: {count / 1e9:.2f} billion parameters, loss {value:.3f}, {seconds:.2f} s, {total.item() / 2**30:.2f} GiB of memory on all ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
