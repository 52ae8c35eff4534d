"""The memory that ``rushlight plan`` says a rank needs, beside what the allocator counts: ``python planned_ranks.py STRATEGY …``, with the launcher's variables set.

``rushlight run --nproc-per-node 2 python bindings/python/tests/planned_ranks.py all`` prints a table of every strategy. Numbers are of a small GPT in training.
"""

import gc
import sys

from sharded_ranks import RANK, SIZE, Replicate, Shard, checkpointing, dist, fsdp, init_device_mesh, nn, parallel, torch

from rushlight import _C

LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS, ROWS = 8, 256, 4, 2048, 128, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for p in (self.wq, self.wk, self.wv))
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.attention, self.feed = Attention(), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.first_norm(x))
        return x + self.feed(self.second_norm(x))


class Gpt(nn.Module):
    """The blocks of a stage, with the embedding before or the head after them."""

    def __init__(self, stage=0, stages=1, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.embedding = nn.Embedding(VOCABULARY, WIDTH) if stage == 0 else None
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS // stages))
        self.norm, self.head = (nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, VOCABULARY, bias=False)) if stage == stages - 1 else (None, None)

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks:
            x = checkpointing.checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(scores, targets):
    return nn.functional.cross_entropy(scores.float().flatten(0, 1), targets.flatten())


def sharded(net, stage, precision, offload=False):
    options = {"mesh": init_device_mesh("cpu", (SIZE,)), "reshard_after_forward": stage == 3}
    if precision == "bf16":
        options["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if offload:
        options["offload_policy"] = fsdp.CPUOffloadPolicy()
    for block in net.blocks:
        fsdp.fully_shard(block, **options)
    fsdp.fully_shard(net, **options)
    if stage == 1:
        net.set_reshard_after_backward(False)
    return net


def split(net):
    """Tensor and sequence parallelism, with scores that stay split along the classes."""
    mesh = init_device_mesh("cpu", (SIZE,))
    column, row = parallel.ColwiseParallel, lambda: parallel.RowwiseParallel(output_layouts=Shard(1))
    enter = lambda: parallel.PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for block in net.blocks:
        parallel.parallelize_module(block, mesh, {
            "first_norm": parallel.SequenceParallel(), "attention": enter(), "second_norm": parallel.SequenceParallel(), "feed": enter(),
            "feed.up": column(), "feed.down": row(), "attention.wq": column(), "attention.wk": column(), "attention.wv": column(), "attention.out": row(),
        })
    return parallel.parallelize_module(net, mesh, {
        "embedding": parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": parallel.SequenceParallel(),
        "head": parallel.ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    })


#: By name: data, tensor and pipeline parallel ranks, ZeRO's stage, microbatches, precision, offload, recomputation.
STRATEGIES = {
    "ddp": (SIZE, 1, 1, 0, 1, "f32", False, False),
    "ddp bf16": (SIZE, 1, 1, 0, 1, "bf16", False, False),
    "zero1": (SIZE, 1, 1, 1, 1, "bf16", False, False),
    "zero2": (SIZE, 1, 1, 2, 1, "bf16", False, False),
    "zero3": (SIZE, 1, 1, 3, 1, "bf16", False, False),
    "zero3 f32": (SIZE, 1, 1, 3, 1, "f32", False, False),
    "zero3 recomputed": (SIZE, 1, 1, 3, 1, "bf16", False, True),
    "zero3 accumulated": (SIZE, 1, 1, 3, 4, "bf16", False, False),
    "offload": (SIZE, 1, 1, 3, 1, "bf16", True, False),
    "tp": (1, SIZE, 1, 0, 1, "f32", False, False),
    "pp": (1, 1, SIZE, 0, 4, "f32", False, False),
}


def measured(name):
    """The peak of this rank in a step, and what shards, gradients and moments hold: with offload that is the host's part."""
    data, tensor, pipeline, zero, microbatches, precision, offload, recompute = STRATEGIES[name]
    gc.collect()
    before = torch.cpu.memory_allocated()
    schedule, losses = None, []
    if pipeline > 1:
        from rushlight.distributed import pipelining as pp

        net = Gpt(RANK, SIZE, recompute)
        schedule = pp.Schedule1F1B(pp.PipelineStage(net, RANK, SIZE, torch.device("cpu")), microbatches, loss_fn=loss_of)
    elif tensor > 1:
        net = split(Gpt(recompute=recompute))
    elif zero == 0:
        net = nn.parallel.DistributedDataParallel(Gpt(recompute=recompute))
    else:
        net = sharded(Gpt(recompute=recompute), zero, precision, offload)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        ids = torch.randint(0, VOCABULARY, (ROWS * microbatches, TOKENS + 1), generator=torch.Generator().manual_seed(0))
        gc.collect()
        torch.cpu.reset_peak_memory_stats()
        if schedule is not None:
            schedule.step(*([ids[:, :-1]] if RANK == 0 else []), target=ids[:, 1:] if RANK == SIZE - 1 else None, losses=losses)
        for part in ids.chunk(microbatches) if schedule is None else ():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=zero == 0 and precision == "bf16"):
                scores = net(part[:, :-1])
            if tensor > 1:
                with parallel.loss_parallel():
                    loss_of(scores, part[:, 1:]).backward()
            else:
                loss_of(scores, part[:, 1:]).backward()
            del scores
        losses.clear()
        gc.collect()
        held = torch.cpu.memory_allocated() - before
        optimizer.step()
        optimizer.zero_grad()
        peak = torch.cpu.max_memory_allocated() - before
    # The peak is at the start of the backward pass, when there are no gradients.
    return (peak - held * 3 // 4, held) if offload else (peak, 0)


def planned(name):
    """What the plan says of both, without its margin."""
    data, tensor, pipeline, zero, microbatches, precision, offload, recompute = STRATEGIES[name]
    model = (LAYERS, WIDTH, HEADS, VOCABULARY, TOKENS)
    return _C._plan_memory(model, (data, tensor, pipeline), zero, (ROWS, microbatches), precision, offload, recompute)


def check(*names):
    """A tenth apart at most, of the rank that needs most."""
    dist.init_process_group("gloo")
    failed = []
    for name in STRATEGIES if names == ("all",) else names:
        found = torch.tensor([float(n) for n in measured(name)])
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        for what, said, bytes in zip(("", ", host"), planned(name), found.tolist()):
            if said == bytes == 0:
                continue
            if RANK == 0:
                print(f"{name}{what}: planned {said / 1e6:.1f} MB, measured {bytes / 1e6:.1f} MB, {said / bytes - 1:+.1%}", flush=True)
            if abs(said / bytes - 1) > 0.1:
                failed.append(name + what)
    dist.destroy_process_group()
    assert not failed, failed


if __name__ == "__main__":
    check(*sys.argv[1:])
