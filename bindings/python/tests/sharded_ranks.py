"""What the ranks of ``test_sharded.py`` run: ``python sharded_ranks.py FUNCTION``, with the launcher's variables set.

With ``SHARDED_PEER=torch`` the programs that print their losses run on PyTorch itself (``tests/differential/sharded.py``).
With ``RUSHLIGHT_TEST_DEVICE=cuda`` the ranks share a GPU (``scripts/test_gpu``).
"""

import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import sys

PEER = os.environ.get("SHARDED_PEER", "rushlight")
if PEER == "rushlight" and importlib.util.find_spec("rushlight") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

torch = importlib.import_module(PEER)
dist = importlib.import_module(f"{PEER}.distributed")
nn = torch.nn
F = nn.functional
fsdp = importlib.import_module(f"{PEER}.distributed.fsdp")
dtensor = importlib.import_module(f"{PEER}.distributed.tensor")
parallel = importlib.import_module(f"{PEER}.distributed.tensor.parallel")
checkpointing = importlib.import_module(f"{PEER}.utils.checkpoint")
init_device_mesh = importlib.import_module(f"{PEER}.distributed.device_mesh").init_device_mesh
DTensor, Replicate, Shard, Partial = dtensor.DTensor, dtensor.Replicate, dtensor.Shard, dtensor.Partial

KIND = os.environ.get("RUSHLIGHT_TEST_DEVICE", "cpu")
#: None: one for each kind of device.
BACKEND = "gloo" if KIND == "cpu" else None
if KIND != "cpu":
    torch.set_default_device(KIND)
RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
VOCABULARY, WIDTH, HEADS, LENGTH = 33, 16, 4, 6
#: Of all ranks in a step: two for each rank at least, as some programs accumulate two microbatches.
ROWS = max(8, 2 * SIZE)


def values(*shape, seed=0):
    """Numbers that are the same everywhere, without a generator."""
    count = 1
    for n in shape:
        count *= n
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7371 + seed).to(torch.float32).reshape(shape)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.w1, self.w2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.recompute = False

    def attention(self, x):
        heads = lambda t: t.view(t.shape[0], t.shape[1], -1, WIDTH // HEADS).transpose(1, 2)
        x = self.attention_norm(x)
        y = F.scaled_dot_product_attention(heads(self.wq(x)), heads(self.wk(x)), heads(self.wv(x)), is_causal=True)
        y = y.transpose(1, 2)
        return self.wo(y.reshape(y.shape[0], y.shape[1], -1))

    def body(self, x):
        x = x + self.attention(x)
        return x + self.w2(F.gelu(self.w1(self.feed_norm(x))))

    def forward(self, x):
        return checkpointing.checkpoint(self.body, x, use_reentrant=False) if self.recompute else self.body(x)


class Model(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpointing.checkpoint(block, x, use_reentrant=False) if getattr(block, "around", False) else block(x)
        return self.head(self.norm(x))


def model(**kwargs):
    net = Model(**kwargs)
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(values(*p.shape, seed=i) * 0.3 + (1.0 if p.dim() == 1 and i % 2 else 0.0))
    return net


def batch(step, rows, first=0):
    ids = (torch.arange(64 * (LENGTH + 1)).reshape(64, LENGTH + 1) * 7 + step * 13) % VOCABULARY
    ids = ids[first : first + rows]
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def loss_of(scores, targets):
    return F.cross_entropy(scores.reshape(-1, VOCABULARY), targets.reshape(-1))


def alone(steps=4, rows=ROWS, clip=None):
    """Losses and parameters of one process."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        ids, targets = batch(step, rows)
        loss = loss_of(net(ids), targets)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: p.detach() for name, p in net.named_parameters()}


def close(found, expected, what, tolerance=1e-5):
    assert len(found) == len(expected), what
    for a, b in zip(found, expected):
        assert abs(a - b) <= tolerance * max(1.0, abs(b)), (what, found, expected)


def same(a, b, what, tolerance=1e-5):
    assert tuple(a.shape) == tuple(b.shape), (what, a.shape, b.shape)
    # Offloaded parameters are on the CPU.
    a, b = a.cpu().double(), b.cpu().double()
    assert torch.allclose(a, b, rtol=tolerance, atol=tolerance), (what, (a - b).abs().max())


def mean_over_ranks(value, group=None):
    total = torch.tensor([value])
    dist.all_reduce(total, group=group)
    return total.item() / (SIZE if group is None else dist.get_world_size(group))


def sharded(net, mesh, prepare=None, **options):
    for block in net.blocks:
        if prepare:
            prepare(block)
        fsdp.fully_shard(block, mesh=mesh, **options)
    return fsdp.fully_shard(net, mesh=mesh, **options)


def train(net, parts, part, steps=4, rows=ROWS, clip=None, halves=1, group=None):
    """Trains on this part of the rows. Returns the losses of all rows."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses, own = [], rows // parts
    for step in range(steps):
        total = 0.0
        for half in range(halves):
            if halves > 1:
                net.set_requires_gradient_sync(half == halves - 1)
            ids, targets = batch(step, own // halves, first=part * own + half * (own // halves))
            loss = loss_of(net(ids), targets) / halves
            loss.backward()
            total += loss.item()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_over_ranks(total, group))
    return losses, optimizer


def check(net, losses, expected, parameters, what):
    close(losses, expected, what)
    for name, p in net.named_parameters():
        assert isinstance(p, DTensor), name
        same(p.full_tensor().detach(), parameters[name], f"{what}: {name}")


def fully_sharded():
    """FSDP2 with its options, against one process."""
    dist.init_process_group(BACKEND)
    expected, parameters = alone(clip=0.5)
    mesh = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("dp",))
    for options in ({}, {"reshard_after_forward": False}, {"reshard_after_forward": True, "offload_policy": fsdp.CPUOffloadPolicy()}):
        net = sharded(model(), mesh, **options)
        assert isinstance(net, fsdp.FSDPModule) and isinstance(net, Model)
        assert net.blocks[0].w1.weight.placements == (Shard(0),)
        assert net.blocks[0].w1.weight.shape == (4 * WIDTH, WIDTH)
        losses, _ = train(net, SIZE, RANK, clip=0.5)
        check(net, losses, expected, parameters, str(options))
    expected, parameters = alone()
    net = sharded(model(), mesh)
    losses, _ = train(net, SIZE, RANK, halves=2)
    check(net, losses, expected, parameters, "accumulation")
    net = sharded(model(), mesh, prepare=lambda block: setattr(block, "recompute", True))
    losses, _ = train(net, SIZE, RANK)
    check(net, losses, expected, parameters, "activation checkpointing inside")
    net = sharded(model(), mesh)
    for block in net.blocks:
        block.around = True
    losses, _ = train(net, SIZE, RANK)
    check(net, losses, expected, parameters, "activation checkpointing around")
    if SIZE == 4:
        hybrid = init_device_mesh(KIND, (2, 2), mesh_dim_names=("replicate", "shard"))
        net = sharded(model(), hybrid)
        assert net.head.weight.placements == (Replicate(), Shard(0))
        losses, _ = train(net, SIZE, RANK)
        check(net, losses, expected, parameters, "hybrid")
    dist.destroy_process_group()


def details():
    """What users see of FSDP2: meta initialisation, mixed precision, unshard, state dicts, memory."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    with torch.device("meta"):
        net = Model()
    policy = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    for block in net.blocks:
        fsdp.fully_shard(block, mesh=mesh, mp_policy=fsdp.MixedPrecisionPolicy(**policy))
    fsdp.fully_shard(net, mesh=mesh, mp_policy=fsdp.MixedPrecisionPolicy(**policy, output_dtype=torch.float32))
    net.to_empty(device=KIND)
    torch.manual_seed(5)
    for module in net.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    whole = Model()
    torch.manual_seed(5)
    for module in whole.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for (name, a), b in zip(net.named_parameters(), whole.parameters()):
        same(a.full_tensor().detach(), b.detach(), name)
    net.unshard()
    assert net.head.weight.dtype == torch.bfloat16 and tuple(net.head.weight.shape) == (VOCABULARY, WIDTH)
    net.reshard()
    assert net.head.weight.dtype == torch.float32
    ids, targets = batch(0, 2)
    scores = net(ids)
    assert scores.dtype == torch.float32
    loss_of(scores, targets).backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.placements == (Shard(0),) for p in net.parameters())
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    assert isinstance(norm, DTensor)
    reference = sum(float(p.grad.full_tensor().square().sum()) for p in net.parameters()) ** 0.5
    assert abs(reference - 0.1) < 1e-4, reference
    state = net.state_dict()
    other = sharded(model(), mesh)
    other.load_state_dict(state)
    same(other.head.weight.full_tensor().detach(), net.head.weight.full_tensor().detach(), "loaded")
    full = {name: value.full_tensor() for name, value in state.items()}
    third = sharded(model(), mesh)
    third.load_state_dict({n: nn.Parameter(dtensor.distribute_tensor(t, mesh, [Shard(0)])) for n, t in full.items()}, assign=True)
    close([float(loss_of(third(ids), targets))], [float(loss_of(other(ids), targets))], "assigned")
    optimizer = torch.optim.Adam(other.parameters())
    loss_of(other(ids), targets).backward()
    optimizer.step()
    kept = optimizer.state_dict()["state"][0]["exp_avg"]
    assert isinstance(kept, DTensor) and kept.shape == other.embedding.weight.shape
    optimizer.load_state_dict(optimizer.state_dict())
    try:
        torch.renorm(other.head.weight, 2, 0, 1.0)
    except NotImplementedError as error:
        assert "renorm" in str(error) and "Shard" in str(error), error
    else:
        raise AssertionError("an op without a rule must say so")
    dist.destroy_process_group()


def distributed_ops():
    """Ops on DTensors against the same ops on whole tensors, values and gradients, for many placements."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    R, S0, S1, S2 = Replicate(), Shard(0), Shard(1), Shard(2)
    x3, w, b = values(4, 8, 12), values(16, 12, seed=1), values(16, seed=2)
    ids = (torch.arange(4 * 8).reshape(4, 8) * 5) % 12
    cases = [
        ("linear", lambda x, w, b: F.linear(x, w, b), (x3, w, b), [(S0, R, R), (S1, R, R), (R, S0, S0), (S2, S1, R), (R, R, R)]),
        ("matmul", lambda x, y: x @ y.transpose(1, 2), (x3, x3 + 1), [(S0, S0), (S1, R), (S2, S2), (R, S1), (R, R)]),
        ("pointwise", lambda x, y: torch.relu(x) * y + x / 3 - 1, (x3, x3 + 1), [(S0, S1), (R, S2), (S2, S2)]),
        ("broadcast", lambda x, b: x + b, (x3, values(12)), [(S0, R), (S2, S0), (R, R)]),
        ("sum", lambda x: (x * x).sum(1).mean(), (x3,), [(S0,), (S1,), (S2,), (R,)]),
        ("softmax", lambda x: x.softmax(-1), (x3,), [(S0,), (S2,)]),
        ("norm", lambda x, w, b: F.layer_norm(x, (12,), w, b), (x3, values(12), values(12, seed=3)), [(S0, R, R), (S1, R, R), (S2, R, R)]),
        ("views", lambda x: x.view(4, 8, 4, 3).transpose(1, 2).reshape(4, 4, 24).flatten(0, 1), (x3,), [(S0,), (S2,), (R,)]),
        ("cat", lambda x, y: torch.cat([x, y], 1).chunk(2, -1)[1], (x3, x3 * 2), [(S0, S0), (S1, R), (S2, S2)]),
        ("embedding", lambda t: F.embedding(dtensor.distribute_tensor(ids, mesh) if isinstance(t, DTensor) else ids, t), (values(12, 8),), [(S0,), (S1,), (R,)]),
        ("attention", lambda q, k: F.scaled_dot_product_attention(q, k, q * k, is_causal=True), (values(4, 4, 6, 8), values(4, 4, 6, 8, seed=4)), [(S0, S0), (S1, S1), (S1, R)]),
        ("cross_entropy", lambda s: F.cross_entropy(s, dtensor.distribute_tensor(ids[0], mesh) if isinstance(s, DTensor) else ids[0], reduction="sum"), (values(8, 12),), [(S0,), (R,), (S1,)]),
    ]
    for name, function, tensors, placed in cases:
        whole = [t.clone().requires_grad_() for t in tensors]
        expected = function(*whole)
        weights = values(*expected.shape, seed=9)
        (expected * weights).sum().backward()
        for placements in placed:
            parts = [dtensor.distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in zip(tensors, placements)]
            result = function(*parts)
            what = f"{name} {placements}"
            assert isinstance(result, DTensor) and tuple(result.shape) == tuple(expected.shape), what
            full = result.full_tensor()
            same(full.detach(), expected.detach(), what)
            (full * weights).sum().backward()
            for part, t in zip(parts, whole):
                same(part.grad.full_tensor(), t.grad, f"gradient of {what}")
    with parallel.loss_parallel():
        scores = dtensor.distribute_tensor(values(8, 12), mesh, [S1]).requires_grad_()
        targets = ids[0].clone()
        targets[2] = -100
        loss = F.cross_entropy(scores, targets)
        loss.backward()
    whole = values(8, 12).requires_grad_()
    expected = F.cross_entropy(whole, targets)
    expected.backward()
    close([loss.item()], [expected.item()], "loss_parallel")
    same(scores.grad.full_tensor(), whole.grad, "gradient of loss_parallel")
    if PEER == "rushlight":
        where = importlib.import_module(f"{PEER}.distributed.tensor._utils").compute_local_shape_and_global_offset
        assert where((5, 3), mesh, [S0]) == ((min(-(-5 // SIZE), max(0, 5 - RANK * -(-5 // SIZE))), 3), (min(5, RANK * -(-5 // SIZE)), 0))
        assert importlib.import_module(f"{PEER}.distributed._composable.fsdp").fully_shard is fsdp.fully_shard
    local = DTensor.from_local(values(2, 3, seed=RANK), mesh, [Partial()]).redistribute(placements=[R]).to_local()
    same(local, sum(values(2, 3, seed=r) for r in range(SIZE)), "partial")
    dist.destroy_process_group()


def plan():
    return {
        "attention_norm": parallel.SequenceParallel(), "feed_norm": parallel.SequenceParallel(),
        "wq": parallel.ColwiseParallel(input_layouts=Shard(1)), "wk": parallel.ColwiseParallel(input_layouts=Shard(1)),
        "wv": parallel.ColwiseParallel(input_layouts=Shard(1)), "wo": parallel.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        "w1": parallel.ColwiseParallel(input_layouts=Shard(1)), "w2": parallel.RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }


def tensor_parallel(net, mesh):
    parallel.parallelize_module(net, mesh, {
        "embedding": parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "norm": parallel.SequenceParallel(),
        "head": parallel.ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    })
    for block in net.blocks:
        parallel.parallelize_module(block, mesh, plan())
    return net


def tensor_parallelism():
    """Tensor and sequence parallelism, and FSDP over them, against one process."""
    dist.init_process_group(BACKEND)
    expected, parameters = alone()
    tp = 2
    mesh = init_device_mesh(KIND, (SIZE // tp, tp), mesh_dim_names=("dp", "tp"))
    if SIZE == tp:
        net = tensor_parallel(model(), mesh["tp"])
        assert net.blocks[0].w1.weight.placements == (Shard(0),) and net.blocks[0].w1.weight.to_local().shape[0] == 2 * WIDTH
        losses, _ = train(net, 1, 0)
        check(net, losses, expected, parameters, "tensor parallel")
    else:
        net = sharded(tensor_parallel(model(), mesh["tp"]), mesh["dp"])
        dp = mesh["dp"]
        losses, _ = train(net, SIZE // tp, dp.get_local_rank(), group=dp.get_group())
        check(net, losses, expected, parameters, "fsdp x tp")
    dist.destroy_process_group()


def functional_collectives():
    """Collectives that return their results, with gradients where their names say so; meshes made of one dimension of another."""
    dist.init_process_group(BACKEND)
    funcol = importlib.import_module(f"{PEER}.distributed._functional_collectives")
    world = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("world",))
    mesh = world._unflatten(0, (SIZE // 2, 2), ("dp", "tp"), backend_override={"dp": "fake"})
    assert mesh.mesh_dim_names == ("dp", "tp") and mesh.shape == (SIZE // 2, 2) and mesh["tp"].size() == 2
    try:
        world._unflatten(0, (SIZE, 2), ("a", "b"))
        raise AssertionError("a mesh of too many ranks")
    except ValueError as error:
        assert "ranks" in str(error)
    x = torch.full((4, 2), RANK + 1.0)
    total = SIZE * (SIZE + 1) / 2
    for group in (world, dist.group.WORLD, (world, 0), list(range(SIZE))):
        assert funcol.wait_tensor(funcol.all_reduce(x, "sum", group)).tolist() == [[total, total]] * 4
    assert x.tolist() == [[RANK + 1.0] * 2] * 4
    assert funcol.all_reduce(x, dist.ReduceOp.MAX.name, world)[0, 0].item() == SIZE
    assert [t[0].item() for t in funcol.all_reduce_coalesced([x[0], x[1]], "avg", world)] == [total / SIZE] * 2
    assert funcol.broadcast(x, SIZE - 1, world)[0, 0].item() == SIZE
    gathered = funcol.all_gather_tensor(x, 1, world)
    assert gathered.shape == (4, 2 * SIZE) and gathered[0].tolist() == [float(r // 2 + 1) for r in range(2 * SIZE)]
    assert funcol.reduce_scatter_tensor(x, "sum", 0, mesh["tp"]).shape == (2, 2)
    own = torch.full((SIZE, 3), float(RANK), requires_grad=True)
    exchanged = funcol.all_to_all_single_autograd(own, None, None, world)
    assert exchanged[:, 0].tolist() == [float(r) for r in range(SIZE)]
    (exchanged * (RANK + 1)).sum().backward()
    assert own.grad[:, 0].tolist() == [r + 1.0 for r in range(SIZE)]
    part = torch.ones(2, 3, requires_grad=True)
    (funcol.all_gather_tensor_autograd(part, 0, world) * (RANK + 1)).sum().backward()
    assert part.grad.tolist() == [[total] * 3] * 2
    whole = torch.ones(SIZE, 3, requires_grad=True)
    (funcol.reduce_scatter_tensor_autograd(whole, "avg", 0, world) * (RANK + 1)).sum().backward()
    assert whole.grad[:, 0].tolist() == [(r + 1.0) / SIZE for r in range(SIZE)]
    placed = dtensor.distribute_tensor(torch.zeros(8, 2), world, [Shard(0)])
    torch.nn.init.trunc_normal_(placed, std=0.5)
    assert 0.0 < placed.full_tensor().abs().max().item() <= 2.0
    norms = torch.stack([placed.norm(), (2 * placed).norm()])
    assert norms.shape == (2,)
    same(norms.full_tensor(), torch.stack([placed.full_tensor().norm(), 2 * placed.full_tensor().norm()]), "norms")
    dist.destroy_process_group()


def overlapped_products():
    """Asynchronous tensor parallelism: products that overlap their communication give the same losses, and are used."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("tp",))
    symmetric = importlib.import_module(f"{PEER}.distributed._symmetric_memory")
    group = mesh.get_group()
    seen = []
    compiled = importlib.import_module(f"{PEER}._C")
    plain = compiled._overlapped_linear
    compiled._overlapped_linear = lambda x, w, dim, gathers, g: (seen.append(gathers), plain(x, w, dim, gathers, g))[1]
    layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    with torch.no_grad():
        for i, p in enumerate(layers.parameters()):
            p.copy_(values(*p.shape, seed=i) * 0.3)
    x, dy = values(2, 2 * SIZE, WIDTH, seed=9), values(2, 2 * SIZE, WIDTH, seed=11)
    mine = lambda t: t.detach().chunk(SIZE, 1)[RANK].contiguous()
    alone = x.clone().requires_grad_()
    expected = layers(alone)
    (expected * dy).sum().backward()
    wanted = {name: p.grad.clone() for name, p in layers.named_parameters()}
    split = {"0": parallel.ColwiseParallel(input_layouts=Shard(1)), "2": parallel.RowwiseParallel(output_layouts=Shard(1))}
    layers = parallel.parallelize_module(layers, mesh, split)

    def step():
        layers.zero_grad()
        own = mine(x).requires_grad_()
        out = layers(own)
        (out * mine(dy)).sum().backward()
        same(out, mine(expected), "output")
        same(own.grad, mine(alone.grad), "input's gradient")
        for name, p in layers.named_parameters():
            same(p.grad.full_tensor(), wanted[name], f"gradient of {name}")

    step()
    assert not seen and not symmetric.is_symm_mem_enabled_for_group(group.group_name)
    symmetric.enable_symm_mem_for_group(group.group_name)
    assert symmetric.is_symm_mem_enabled_for_group(group.group_name)
    step()
    assert seen == [True, False], seen
    # Lengths that do not split evenly go the usual way, as do layers whose tokens are not split.
    odd = layers(DTensor.from_local(values(2, 3, WIDTH), mesh, [Replicate()], run_check=False))
    assert odd.shape[1] <= 3 and seen == [True, False], seen
    # The products by their names, with any dtype that can be multiplied.
    for dtype in (torch.float32, torch.bfloat16):
        a, b = values(2, 4 * SIZE, 8).to(dtype), values(8, 6, seed=3).to(dtype)
        whole, (product, second) = torch.ops.symm_mem.fused_all_gather_matmul(mine(a), [b, b[:, :2]], 1, group.group_name)
        assert torch.equal(whole, a)
        same(product.float(), (a @ b).float(), "gathered product", 2e-2)
        same(second.float(), (a @ b[:, :2]).float(), "second product", 2e-2)
        none, _ = torch.ops.symm_mem.fused_all_gather_matmul(mine(a), [b], 1, group.group_name, return_A=False)
        assert none is None
        mean = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "avg", 1, group.group_name)
        same(mean.float(), mine(a @ b).float(), "mean of products", 5e-2)
    try:
        torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "max", 1, group.group_name)
        raise AssertionError("a reduction by max")
    except ValueError as error:
        assert "sum or avg" in str(error)
    dist.destroy_process_group()


def memory():
    """ZeRO-3 holds 1/N of parameters, gradients and states, and one block at a time."""
    dist.init_process_group(BACKEND)
    net = sharded(model(layers=6), init_device_mesh(KIND, (SIZE,)))
    units = [part._fsdp_unit for part in net.modules() if "_fsdp_unit" in part.__dict__]
    largest = 0
    for block in net.blocks:
        block.w1.register_forward_hook(lambda *_: note())

    def note():
        nonlocal largest
        largest = max(largest, sum(unit.group.gathered_bytes for unit in units))

    losses, optimizer = train(net, SIZE, RANK, steps=1)
    held = sum(p.to_local().numel() for p in net.parameters())
    held += sum(t.numel() for state in optimizer.state.values() for t in state.values() if t.dim() > 0)
    total = 3 * sum(p.numel() for p in net.parameters())
    assert held * SIZE <= 1.1 * total, (held, total)
    block = sum(p.numel() for p in net.blocks[0].parameters()) * 4
    root = sum(p.numel() for n, p in net.named_parameters() if not n.startswith("blocks")) * 4
    assert 0 < largest <= 1.1 * (block + root), (largest, block, root)
    assert all(not unit.group.is_gathered for unit in units)
    if SIZE == 4:
        measured()
    dist.destroy_process_group()


def measured():
    """What the allocator counts in a step: with and without activation checkpointing, 1/N of parameters, gradients and states, and a few blocks."""
    import gc

    global WIDTH
    WIDTH = 128
    mesh = init_device_mesh(KIND, (SIZE,))
    for recompute in (False, True):
        gc.collect()
        before = torch.cpu.memory_allocated()
        net = sharded(Model(layers=48), mesh, prepare=lambda block: setattr(block, "around", recompute))
        optimizer = torch.optim.AdamW(net.parameters())
        ids, targets = batch(0, 1)
        for _ in range(2):
            gc.collect()
            torch.cpu.reset_peak_memory_stats()
            loss_of(net(ids), targets).backward()
            optimizer.step()
            peak = torch.cpu.max_memory_allocated() - before
            optimizer.zero_grad()
        total = 4 * 4 * sum(p.numel() for p in net.parameters()) / SIZE
        block = 4 * sum(p.numel() for p in net.blocks[0].parameters())
        assert total <= peak <= 1.1 * total + block, (recompute, peak, total, block)
        del net, optimizer


def wrapped():
    """FullyShardedDataParallel and ZeroRedundancyOptimizer, against one process."""
    dist.init_process_group(BACKEND)
    expected, parameters = alone(clip=0.5)
    FSDP, wrap = fsdp.FullyShardedDataParallel, importlib.import_module(f"{PEER}.distributed.fsdp.wrap")
    policy = wrap.ModuleWrapPolicy({Block})
    for strategy in (fsdp.ShardingStrategy.FULL_SHARD, fsdp.ShardingStrategy.SHARD_GRAD_OP, fsdp.ShardingStrategy.NO_SHARD):
        start = model()
        if RANK:
            torch.nn.init.zeros_(start.head.weight)
        net = FSDP(start, auto_wrap_policy=policy, sharding_strategy=strategy, sync_module_states=True, use_orig_params=True)
        assert isinstance(net.blocks[0], FSDP) and len(FSDP.fsdp_modules(net)) == 3
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        found = []
        for step in range(4):
            total, rows = 0.0, ROWS // SIZE
            for half in range(2):
                ids, targets = batch(step, rows // 2, first=RANK * rows + half * (rows // 2))
                with contextlib.nullcontext() if half else net.no_sync():
                    loss = loss_of(net(ids), targets) / 2
                    loss.backward()
                total += loss.item()
            net.clip_grad_norm_(0.5)
            optimizer.step()
            optimizer.zero_grad()
            found.append(mean_over_ranks(total))
        close(found, expected, str(strategy))
        with FSDP.state_dict_type(net, fsdp.StateDictType.FULL_STATE_DICT, fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=False)):
            state, states = net.state_dict(), FSDP.optim_state_dict(net, optimizer)
        assert set(state) == set(parameters), set(state) ^ set(parameters)
        for name, value in parameters.items():
            same(state[name], value, name)
            assert tuple(states["state"][name]["exp_avg"].shape) == tuple(value.shape)
        other = FSDP(model(), auto_wrap_policy=policy)
        other.load_state_dict(state)
        optimizer = torch.optim.AdamW(other.parameters(), lr=1e-2)
        optimizer.load_state_dict(FSDP.optim_state_dict_to_load(other, optimizer, states))
        with FSDP.summon_full_params(other):
            same(other.blocks[0].w1.weight.detach(), parameters["blocks.0.w1.weight"], "summoned")
    zero = importlib.import_module(f"{PEER}.distributed.optim").ZeroRedundancyOptimizer
    expected, parameters = alone()
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = zero(net.parameters(), torch.optim.AdamW, lr=1e-2)
    found, rows = [], ROWS // SIZE
    for step in range(4):
        ids, targets = batch(step, rows, first=RANK * rows)
        loss = loss_of(net(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(mean_over_ranks(loss.item()))
        if step == 1:
            optimizer.consolidate_state_dict(to=0)
            kept = [optimizer.state_dict() if RANK == 0 else None]
            dist.broadcast_object_list(kept, src=0)
            optimizer = zero(net.parameters(), torch.optim.AdamW, lr=1e-2)
            optimizer.load_state_dict(kept[0])
    close(found, expected, "ZeroRedundancyOptimizer")
    for name, p in net.module.named_parameters():
        same(p.detach(), parameters[name], name)
    held = sum(p.numel() for p in optimizer.optim.state)
    assert held * SIZE <= 1.3 * sum(p.numel() for p in net.parameters()), held
    dist.destroy_process_group()


def scaled():
    """An infinity in one rank's shard: every rank skips the step and halves the scale. Without ranks apart, all step."""
    dist.init_process_group(BACKEND)
    sharded_scaler = importlib.import_module(f"{PEER}.distributed.fsdp.sharded_grad_scaler").ShardedGradScaler
    for kind in (torch.amp.GradScaler, sharded_scaler):
        net = nn.Linear(4, 2 * SIZE, bias=False)
        nn.init.ones_(net.weight)
        fsdp.fully_shard(net, mesh=init_device_mesh(KIND, (SIZE,)))
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.5), kind(KIND, init_scale=4.0)
        for damaged in (True, False):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(1, 4)).sum()).backward()
            if damaged and RANK == SIZE - 1:
                net.weight.grad.to_local()[0, 0] = float("inf")
            if not damaged:
                scaler.unscale_(optimizer)
                same(net.weight.grad.to_local(), torch.ones(2, 4), "unscaled gradient")
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0, (kind, damaged, scaler.get_scale())
            same(net.weight.to_local().detach(), torch.full((2, 4), 1.0 if damaged else 0.5), f"{kind} {damaged}")
    dist.destroy_process_group()


def losses():
    """Losses of FSDP2, and of tensor parallelism on two ranks, for the comparison with PyTorch."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("dp",))
    found = {"fsdp": train(sharded(model(), mesh), SIZE, RANK, clip=0.5, steps=6)[0]}
    if SIZE == 2:
        grid = init_device_mesh(KIND, (1, 2), mesh_dim_names=("dp", "tp"))
        found["tp"] = train(tensor_parallel(model(), grid["tp"]), 1, 0, steps=6)[0]
    else:
        grid = init_device_mesh(KIND, (SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
        dp = grid["dp"]
        net = sharded(tensor_parallel(model(), grid["tp"]), dp)
        found["fsdp x tp"] = train(net, SIZE // 2, dp.get_local_rank(), group=dp.get_group(), steps=6)[0]
    if RANK == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def speed():
    """The time of a training step of FSDP2, best of five rounds, and the CPU's time of both ranks together."""
    import time

    global WIDTH
    dist.init_process_group(BACKEND)
    WIDTH = 256
    net = sharded(Model(layers=4), init_device_mesh(KIND, (SIZE,)))
    optimizer = torch.optim.AdamW(net.parameters())
    ids, targets = batch(0, 32)
    best = float("inf")
    for round in range(6):
        used = time.process_time() if round == 1 else 0.0 if round == 0 else used
        start = time.perf_counter()
        for _ in range(3):
            loss_of(net(ids), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        best = min(best, (time.perf_counter() - start) / 3) if round else best
    used = torch.tensor([(time.process_time() - used) / 15])
    dist.all_reduce(used)
    if RANK == 0:
        print(json.dumps({"step": best, "cpu": used.item()}))
    dist.destroy_process_group()


def overlap_speed():
    """Steps of a tensor-parallel feed-forward layer whose tokens are split, with and without overlapped communication, in turns: the best of each."""
    import time

    width, tokens = (int(os.environ.get(name, default)) for name, default in (("OVERLAP_WIDTH", 1024), ("OVERLAP_TOKENS", 2048)))
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("tp",))
    symmetric = importlib.import_module(f"{PEER}.distributed._symmetric_memory")
    split = {"0": parallel.ColwiseParallel(input_layouts=Shard(1)), "2": parallel.RowwiseParallel(output_layouts=Shard(1))}
    layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    layers = parallel.parallelize_module(layers, mesh, split)
    x = values(1, tokens // SIZE, width).requires_grad_()
    wait = torch.cuda.synchronize if KIND == "cuda" else lambda: None
    best = {"plain": float("inf"), "overlapped": float("inf")}
    for turn in range(8):
        for name in best:
            dist.barrier()
            start = time.perf_counter()
            with symmetric._test_mode() if name == "overlapped" else contextlib.nullcontext():
                for _ in range(3):
                    layers(x).sum().backward()
            wait()
            dist.barrier()
            if turn:
                best[name] = min(best[name], (time.perf_counter() - start) / 3)
    if RANK == 0:
        print(json.dumps(best | {"ratio": best["plain"] / best["overlapped"]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
