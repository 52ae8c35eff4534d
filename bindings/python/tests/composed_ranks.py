"""Compositions of parallelisms over one mesh, against one process: ``python composed_ranks.py FUNCTION``, with the launcher's variables set.

With ``SHARDED_PEER=torch`` the same programs run on PyTorch itself (``tests/differential/sharded.py``).
"""

import importlib
import json
import sys

import sharded_ranks as base
from sharded_ranks import BACKEND, KIND, PEER, RANK, SIZE, Replicate, Shard, dist, fsdp, init_device_mesh, nn, parallel, torch

pp = importlib.import_module(f"{PEER}.distributed.pipelining")
STEPS, ROWS = 4, 8
#: Sequences that split into two parts for each of two ranks.
base.LENGTH = 8


class Part(nn.Module):
    """Some blocks of the model, with the embedding before or the head after them."""

    def __init__(self, net, stage, stages):
        super().__init__()
        count = len(net.blocks)
        self.embedding = net.embedding if stage == 0 else None
        self.blocks = nn.ModuleList(net.blocks[stage * count // stages : (stage + 1) * count // stages])
        self.norm, self.head = (net.norm, net.head) if stage == stages - 1 else (None, None)

    def forward(self, x):
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def split_tensors(part, mesh):
    """Tensor and sequence parallelism; local tensors go from stage to stage."""
    column, row = (lambda: parallel.ColwiseParallel(input_layouts=Shard(1))), (lambda: parallel.RowwiseParallel(output_layouts=Shard(1)))
    plan = {
        "attention_norm": parallel.SequenceParallel(), "feed_norm": parallel.SequenceParallel(), "wq": column(), "wk": column(), "wv": column(), "wo": row(),
        "w1": column(), "w2": row(),
    }
    for block in part.blocks:
        parallel.parallelize_module(block, mesh, dict(plan))
    ends = {}
    if part.embedding is not None:
        ends["embedding"] = parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if part.head is not None:
        ends |= {"norm": parallel.SequenceParallel(), "head": parallel.ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
    return parallel.parallelize_module(part, mesh, ends) if ends else part


def whole(p):
    return (p.full_tensor() if hasattr(p, "full_tensor") else p).detach()


def pipelined(tp, kind="Schedule1F1B"):
    """Two stages, each sharded over the ranks of ``dp``, its layers split over those of ``tp``. Losses, and the stage's parameters."""
    mesh = init_device_mesh(KIND, (2, SIZE // (2 * tp), tp), mesh_dim_names=("pp", "dp", "tp"))
    number, dp = mesh.get_local_rank("pp"), mesh["dp"]
    part = Part(base.model(), number, 2)
    if tp > 1:
        split_tensors(part, mesh["tp"])
    for block in part.blocks:
        fsdp.fully_shard(block, mesh=dp)
    fsdp.fully_shard(part, mesh=dp)
    stage = pp.PipelineStage(part, number, 2, torch.device(KIND), group=mesh.get_group("pp"))
    schedule = getattr(pp, kind)(stage, n_microbatches=2, loss_fn=base.loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-2)
    losses, own = [], ROWS // dp.size()
    for step in range(STEPS):
        ids, targets = base.batch(step, own, first=dp.get_local_rank() * own)
        found = []
        schedule.step(*([ids] if number == 0 else []), target=targets if number == 1 else None, losses=found)
        optimizer.step()
        optimizer.zero_grad()
        loss = sum(float(one) for one in found) / len(found) if found else 0.0
        # Only the ranks of the last stage have losses: half of all.
        losses.append(2 * base.mean_over_ranks(loss))
    names = {name if not name.startswith("blocks") else name.replace("blocks.0", f"blocks.{number}"): p for name, p in part.named_parameters()}
    return losses, names


def split_sequences():
    """FSDP over all ranks, sequences split over the ranks of ``cp``."""
    context_parallel = importlib.import_module(f"{PEER}.distributed.tensor.experimental").context_parallel
    mesh = init_device_mesh(KIND, (SIZE // 2, 2), mesh_dim_names=("dp", "cp"))
    net = base.sharded(base.model(), mesh._flatten("all"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses, own = [], ROWS // (SIZE // 2)
    for step in range(STEPS):
        ids, targets = base.batch(step, own, first=mesh.get_local_rank("dp") * own)
        with context_parallel(mesh["cp"], buffers=[ids, targets], buffer_seq_dims=[1, 1], no_restore_buffers={ids}):
            assert ids.shape[1] == base.LENGTH // 2
            loss = base.loss_of(net(ids), targets)
            loss.backward()
        assert targets.shape[1] == base.LENGTH and ids.shape[1] == base.LENGTH // 2
        optimizer.step()
        optimizer.zero_grad()
        losses.append(base.mean_over_ranks(loss.item()))
    return losses, dict(net.named_parameters())


def compositions():
    """Every composition that the number of ranks allows; rank 0 prints the losses."""
    dist.init_process_group(BACKEND)
    expected, parameters = base.alone(steps=STEPS, rows=ROWS)
    runs = {"pp x dp": lambda: pipelined(1)}
    if PEER == "rushlight":
        # PyTorch has ring attention for GPUs only.
        runs["fsdp x cp"] = split_sequences
    if SIZE >= 8:
        runs["tp x pp x dp"] = lambda: pipelined(2)
        runs["tp x pp x dp, GPipe"] = lambda: pipelined(2, "ScheduleGPipe")
    found = {}
    for what, run in runs.items():
        found[what], own = run()
        base.close(found[what], expected, what, 1e-5)
        for name, p in own.items():
            base.same(whole(p), parameters[name], f"{what}: {name}")
    if RANK == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def sharding_options():
    """Dimensions of shards, several modules as one group, parts kept among neighbours; against one process."""
    dist.init_process_group(BACKEND)
    expected, parameters = base.alone()
    mesh = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("dp",))
    by_columns = lambda p: Shard(1) if p.dim() == 2 and p.shape[1] % SIZE == 0 else None
    net = base.sharded(base.model(), mesh, shard_placement_fn=by_columns)
    assert net.blocks[0].w1.weight.placements == (Shard(1),) and net.norm.weight.placements == (Shard(0),)
    losses, _ = base.train(net, SIZE, RANK)
    base.check(net, losses, expected, parameters, "shard_placement_fn")
    net = base.model()
    fsdp.fully_shard([net.norm, net.head], mesh=mesh)
    fsdp.fully_shard(list(net.blocks), mesh=mesh)
    fsdp.fully_shard(net, mesh=mesh)
    losses, _ = base.train(net, SIZE, RANK)
    base.check(net, losses, expected, parameters, "several modules as one group")
    if SIZE > 2:
        net = base.sharded(base.model(), mesh, reshard_after_forward=2)
        losses, _ = base.train(net, SIZE, RANK)
        base.check(net, losses, expected, parameters, "reshard_after_forward=2")
    try:
        fsdp.fully_shard(base.model(), mesh=mesh, reshard_after_forward=SIZE + 1)
    except ValueError as error:
        assert f"it should be a factor of {SIZE}" in str(error), error
    else:
        raise AssertionError("a number that is no factor")
    dist.destroy_process_group()


def long_and_wide():
    """Context and expert parallelism by themselves."""
    from rushlight.distributed.expert_parallel import dispatch
    from rushlight.distributed.tensor import DTensor, distribute_tensor
    from rushlight.distributed.tensor.experimental import _attention as cp
    from rushlight.distributed.tensor.experimental import implicit_replication, local_map, ulysses_attention

    dist.init_process_group(BACKEND)
    mesh, F = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("cp",)), nn.functional
    length = 4 * SIZE
    for balance in (True, False):
        cp._cp_options.enable_load_balance = balance
        for causal, groups in ((True, 1), (False, 1), (True, 2)):
            leaves = [base.values(2, 4 // (groups if i else 1), length, 6, seed=i).requires_grad_() for i in range(3)]
            out = F.scaled_dot_product_attention(*leaves, is_causal=causal, scale=0.3, enable_gqa=groups > 1)
            weights = base.values(*out.shape, seed=7)
            (out * weights).sum().backward()
            parts = [t.detach().clone() for t in (*leaves, weights)]
            with cp.context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4):
                own = [t.detach().clone().requires_grad_() for t in parts[:3]]
                mine = F.scaled_dot_product_attention(*own, is_causal=causal, scale=0.3, enable_gqa=groups > 1)
                (mine * parts[3]).sum().backward()
            assert F.scaled_dot_product_attention is cp._plain_attention and parts[0].shape[2] == length
            for part, expected in zip((mine, *(t.grad for t in own)), (out, *(t.grad for t in leaves))):
                base.same(cp.context_parallel_unshard(mesh, [part.detach()], [2])[0], expected.detach(), f"attention {balance} {causal} {groups}", 1e-5)
    cp._cp_options.enable_load_balance = True
    # Ulysses: whole sequences of some heads on each rank.
    for causal, groups in ((True, 1), (False, 2)):
        leaves = [base.values(2, SIZE * (2 // (groups if i else 1)), length, 6, seed=i).requires_grad_() for i in range(3)]
        out = F.scaled_dot_product_attention(*leaves, is_causal=causal, scale=0.3, enable_gqa=groups > 1)
        weights = base.values(*out.shape, seed=7)
        (out * weights).sum().backward()
        mine = lambda t: t.detach().chunk(SIZE, 2)[RANK].contiguous()
        own = [mine(t).requires_grad_() for t in leaves]
        part = ulysses_attention(*own, mesh, is_causal=causal, scale=0.3, enable_gqa=groups > 1)
        (part * mine(weights)).sum().backward()
        for found, expected in zip((part, *(t.grad for t in own)), (out, *(t.grad for t in leaves))):
            base.same(found.detach(), mine(expected), f"Ulysses {causal} {groups}", 1e-5)
    cp.set_attention_method("ulysses")
    buffer = base.values(2, 2 * SIZE, length, 6)
    expected = F.scaled_dot_product_attention(buffer, buffer, buffer, is_causal=True)
    with cp.context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[2]):
        part = F.scaled_dot_product_attention(buffer, buffer, buffer, is_causal=True)
    base.same(cp.context_parallel_unshard(mesh, [part], [2])[0], expected, "Ulysses within context_parallel", 1e-5)
    cp.set_attention_method("ring")
    # A module of attention under the style.
    class Attention(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    inner = parallel.parallelize_module(Attention(), mesh, cp._ContextParallel(seq_dim=2, attention_type=cp._ContextParallel.AttentionType.SDPA))
    balancer = cp._HeadTailLoadBalancer(length, SIZE)
    tensors = [base.values(2, 4, length, 6, seed=i) for i in range(3)]
    mine = inner(*cp._context_parallel_shard(mesh, tensors, [2] * 3, balancer))
    base.same(cp.context_parallel_unshard(mesh, [mine], [2], balancer)[0], F.scaled_dot_product_attention(*tensors, is_causal=True), "_ContextParallel", 1e-5)
    # Experts: each doubles, triples, … its tokens.
    experts = 2 * SIZE
    tokens = base.values(10, 3, seed=RANK).requires_grad_()
    chosen = (torch.arange(10) * 5 + RANK) % experts
    rows, way = dispatch(tokens, chosen, experts)
    parts = [part * (2.0 + RANK * 2 + i) for i, part in enumerate(rows.split(way.counts))]
    back = way.combine(torch.cat(parts))
    base.same(back.detach(), (tokens * (2.0 + chosen).unsqueeze(1)).detach(), "experts")
    back.sum().backward()
    base.same(tokens.grad, (2.0 + chosen).unsqueeze(1).expand(10, 3), "gradient of experts")
    # Functions on local parts.
    x = distribute_tensor(base.values(2 * SIZE, 3), mesh, [Shard(0)])
    doubled = local_map(lambda t: t * 2, out_placements=[Shard(0)], in_placements=([Shard(0)],))(x)
    assert isinstance(doubled, DTensor)
    base.same(doubled.full_tensor(), base.values(2 * SIZE, 3) * 2, "local_map")
    with implicit_replication():
        base.same((x + torch.ones(3)).full_tensor(), base.values(2 * SIZE, 3) + 1, "implicit_replication")
    dist.destroy_process_group()


class Experts(nn.Module):
    """A mixture: each token goes to the expert that its gate likes best. ``own``: the experts of this rank; None if all are here."""

    def __init__(self, count, own=None):
        super().__init__()
        self.count, self.own = count, own
        self.gate = nn.Linear(base.WIDTH, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(base.WIDTH, 8), nn.GELU(), nn.Linear(8, base.WIDTH)) for _ in range(count))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weight, chosen = self.gate(tokens).softmax(-1).max(-1)
        if self.own is None:
            outputs = torch.stack([expert(tokens) for expert in self.experts], 1)
            found = outputs[torch.arange(len(tokens)), chosen]
        else:
            from rushlight.distributed.expert_parallel import dispatch

            rows, way = dispatch(tokens, chosen, self.count)
            found = way.combine(torch.cat([self.experts[e](part) for e, part in zip(self.own, rows.split(way.counts))]))
        return x + (found * weight.unsqueeze(1)).view_as(x)


def experts():
    """A model whose experts are split among the ranks, trained loss for loss as in one process."""
    dist.init_process_group(BACKEND)
    count, rows = 2 * SIZE, 4 * SIZE
    losses, nets = [], []
    for own in (None, range(RANK * 2, RANK * 2 + 2)):
        net = nn.Sequential(nn.Embedding(base.VOCABULARY, base.WIDTH), Experts(count, own), Experts(count, own), nn.Linear(base.WIDTH, base.VOCABULARY))
        with torch.no_grad():
            for i, p in enumerate(net.parameters()):
                p.copy_(base.values(*p.shape, seed=i) * 0.3)
        # Not Adam, whose first steps are as large for gradients that are all rounding.
        optimizer, found = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), []
        for step in range(STEPS):
            ids, targets = base.batch(step, rows) if own is None else base.batch(step, rows // SIZE, first=RANK * (rows // SIZE))
            loss = base.loss_of(net(ids), targets)
            loss.backward()
            if own is not None:
                # A mean over ranks: experts have the gradients of all ranks' tokens, other layers those of their own.
                for name, p in net.named_parameters():
                    if p.grad is not None:
                        if ".experts." not in name:
                            dist.all_reduce(p.grad)
                        p.grad /= SIZE
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item() if own is None else base.mean_over_ranks(loss.item()))
        losses.append(found)
        nets.append(net)
    base.close(losses[1], losses[0], "experts")
    mine = [f".experts.{e}." for e in range(RANK * 2, RANK * 2 + 2)]
    for (name, p), q in zip(nets[1].named_parameters(), nets[0].parameters()):
        if ".experts." not in name or any(part in name for part in mine):
            base.same(p.detach(), q.detach(), name)
    dist.destroy_process_group()


def split_by_tensors():
    """Tensor parallelism over all ranks, by itself, against one process."""
    dist.init_process_group(BACKEND)
    base.WIDTH, base.HEADS = 4 * SIZE, SIZE
    expected, parameters = base.alone()
    net = base.tensor_parallel(base.model(), init_device_mesh(KIND, (SIZE,), mesh_dim_names=("tp",)))
    assert net.blocks[0].wq.weight.to_local().shape[0] == 4
    found, _ = base.train(net, 1, 0)
    base.check(net, found, expected, parameters, "tensor parallel")
    dist.destroy_process_group()


def updated_in_backward():
    """Updates that run in a thread while the backward pass goes on: the same numbers, bit for bit, as one update after it."""
    import threading

    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))

    def trained(in_backward, prepare=None, halves=1, **options):
        net = base.sharded(base.model(layers=4), mesh, prepare, **options)
        make = lambda parameters: torch.optim.AdamW(parameters, lr=1e-2)
        optimizer = fsdp.UpdateInBackward(net, make) if in_backward else make(net.parameters())
        updated, waited = threading.Event(), []
        if in_backward:
            plain = optimizer._update
            optimizer._update = lambda unit: (plain(unit), updated.set())
        def embedded(module, args, output):
            # When the gradient comes here, those of the last blocks have arrived, and the thread updates these.
            output.register_hook(lambda _: waited.append(updated.wait(60)))
        if in_backward and halves == 1 and prepare is None:
            net.embedding.register_forward_hook(embedded)
        own = base.ROWS // SIZE
        for step in range(STEPS):
            updated.clear()
            for half in range(halves):
                net.set_requires_gradient_sync(half == halves - 1)
                ids, targets = base.batch(step, own // halves, first=RANK * own + half * (own // halves))
                base.loss_of(net(ids), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert waited == [True] * len(waited) and len(waited) == (STEPS if in_backward and halves == 1 and prepare is None else 0), waited
        return [p.to_local().detach() for p in net.parameters()]

    recomputed = lambda block: setattr(block, "around", True)
    for options in ({}, {"offload_policy": fsdp.CPUOffloadPolicy()}, {"reshard_after_forward": False}, {"prepare": recomputed}, {"halves": 2}):
        for a, b in zip(trained(True, **options), trained(False, **options)):
            assert torch.equal(a, b), options
    net = base.sharded(base.model(), mesh)
    for wrong, words in ((lambda: fsdp.UpdateInBackward(net, torch.optim.LBFGS), "LBFGS"), (lambda: fsdp.UpdateInBackward(base.model(), torch.optim.SGD), "fully_shard")):
        try:
            wrong()
            raise AssertionError(words)
        except (NotImplementedError, ValueError) as error:
            assert words in str(error), error
    optimizer = fsdp.UpdateInBackward(net, torch.optim.SGD)
    ids, targets = base.batch(0, 1)
    for _ in range(2):
        base.loss_of(net(ids), targets).backward()
    try:
        optimizer.step()
        raise AssertionError("two backward passes")
    except RuntimeError as error:
        assert "second backward pass" in str(error), error
    dist.destroy_process_group()


def resharded(folder):
    """A checkpoint of a model that is split twice, by rows of rows, is whole for one process."""
    from rushlight.distributed import checkpoint as dcp
    from rushlight.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    dist.init_process_group(BACKEND)
    grid = init_device_mesh(KIND, (SIZE // 2, 2), mesh_dim_names=("dp", "tp"))
    net = base.sharded(base.tensor_parallel(base.model(), grid["tp"]), grid["dp"])
    dcp.save({"model": get_model_state_dict(net)}, checkpoint_id=folder)
    expected = base.model().state_dict()
    found = {name: torch.zeros(tuple(value.shape)) for name, value in expected.items()}
    dcp.load({"model": found}, checkpoint_id=folder, no_dist=True)
    for name, value in expected.items():
        base.same(found[name], value, name, 0.0)
    # A model without memory gets its own by loading.
    with torch.device("meta"):
        empty = base.Model()
    empty = base.sharded(empty, init_device_mesh(KIND, (SIZE,)))
    options = importlib.import_module(f"{PEER}.distributed.checkpoint.state_dict").StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(empty, found if RANK == 0 else {}, options=options)
    for name, p in empty.named_parameters():
        base.same(p.full_tensor().detach(), expected[name], name, 0.0)
    dist.destroy_process_group()


def unflattened():
    """Meshes made from the mesh of all ranks by two grids, as torchtitan makes them: one for tensors, one for shards."""
    dist.init_process_group(BACKEND)
    expected, parameters = base.alone()
    world = init_device_mesh(KIND, (SIZE,), mesh_dim_names=("world",))
    first = world._unflatten(0, (SIZE // 2, 2), ("batch", "tp"), backend_override={"batch": "fake"})
    second = world._unflatten(0, (1, SIZE // 2, 2), ("replicas", "dp", "columns"))
    dp = second["dp"]
    net = base.sharded(base.tensor_parallel(base.model(), first["tp"]), dp)
    found, _ = base.train(net, SIZE // 2, dp.get_local_rank(), group=dp.get_group())
    base.close(found, expected, "two grids")
    for name, p in net.named_parameters():
        assert p.device_mesh.mesh_dim_names == ("dp", "tp") and p.device_mesh.shape == (SIZE // 2, 2), p.device_mesh
        base.same(p.full_tensor().detach(), parameters[name], name)
    dist.destroy_process_group()


def replicated():
    """``replicate``, which changes a module in place, and ``set_requires_gradient_sync``."""
    from rushlight.distributed._composable.replicate import replicate

    dist.init_process_group(BACKEND)
    expected, parameters = base.alone()
    net = replicate(base.model(), device_mesh=init_device_mesh(KIND, (SIZE,)), bucket_cap_mb=100)
    assert isinstance(net, base.Model) and [name for name, _ in net.named_parameters()] == list(parameters)
    found, _ = base.train(net, SIZE, RANK, halves=2)
    base.close(found, expected, "replicate")
    for name, p in net.named_parameters():
        base.same(p.detach(), parameters[name], name)
    try:
        replicate(net)
        raise AssertionError("replicate twice")
    except ValueError as error:
        assert "already" in str(error)
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
