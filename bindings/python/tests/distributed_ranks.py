"""What the ranks of ``test_distributed.py`` run: ``python distributed_ranks.py FUNCTION``, with the launcher's variables set."""

import importlib.util
import os
import pathlib
import sys
from datetime import timedelta

if importlib.util.find_spec("rushlight") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import rushlight as torch
from rushlight import distributed as dist
from rushlight import nn

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
SIZES = (0, 1, 7, 1021, 70001)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8)
OPS = dist.ReduceOp


def rank_tensor(rank, count, dtype):
    """Small whole numbers, exact in every dtype."""
    return ((torch.arange(count) + 3 * rank) % 5 + 1).to(dtype)


def combined(op, count, dtype):
    """What a reduction over all ranks gives, computed by one process."""
    whole = torch.stack([rank_tensor(r, count, torch.int64) for r in range(SIZE)])
    if op == OPS.AVG:
        return whole.double().mean(0).to(dtype)
    if op in (OPS.MIN, OPS.MAX):
        return (whole.amin(0) if op == OPS.MIN else whole.amax(0)).to(dtype)
    total = whole[0].clone()
    for row in whole[1:]:
        total = {OPS.SUM: total + row, OPS.PRODUCT: total * row, OPS.BAND: total & row, OPS.BOR: total | row, OPS.BXOR: total ^ row}[op]
    return total.to(dtype)


def same(a, b, what):
    assert a.shape == b.shape and a.dtype == b.dtype, (what, a.shape, b.shape, a.dtype, b.dtype)
    assert torch.allclose(a.double(), b.double(), rtol=1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-6), what


def reductions():
    dist.init_process_group("gloo")
    for dtype in DTYPES:
        for count in SIZES:
            for op in (OPS.SUM, OPS.AVG, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR, OPS.BXOR):
                if dtype.is_floating_point == (op in (OPS.BAND, OPS.BOR, OPS.BXOR)) or (op == OPS.AVG and not dtype.is_floating_point):
                    continue
                if count == SIZES[-1] and op not in (OPS.SUM, OPS.MAX):
                    continue
                want, what = combined(op, count, dtype), (op, count, dtype)
                x = rank_tensor(RANK, count, dtype)
                assert dist.all_reduce(x, op) is None
                same(x, want, what)
                x = rank_tensor(RANK, count, dtype)
                work = dist.all_reduce(x, op, async_op=True)
                assert work.wait() and work.is_completed() and work.is_success()
                same(x, want, what)
            x = rank_tensor(RANK, count, dtype)
            dist.reduce(x, SIZE - 1)
            same(x, combined(OPS.SUM, count, dtype) if RANK == SIZE - 1 else rank_tensor(RANK, count, dtype), ("reduce", count, dtype))
            parts = [rank_tensor(RANK, count, dtype) + i for i in range(SIZE)]
            want = combined(OPS.SUM, count, dtype) + SIZE * RANK
            out = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter(out, parts)
            same(out, want, ("reduce_scatter", count, dtype))
            out.zero_()
            dist.reduce_scatter_tensor(out, torch.cat(parts))
            same(out, want, ("reduce_scatter_tensor", count, dtype))
    lists = [rank_tensor(RANK, n, torch.float32) for n in SIZES]
    dist.all_reduce_coalesced(lists)
    for x, n in zip(lists, SIZES):
        same(x, combined(OPS.SUM, n, torch.float32), ("coalesced", n))
    x = rank_tensor(RANK, 12, torch.float32).view(3, 4).t()
    dist.all_reduce(x)
    same(x, combined(OPS.SUM, 12, torch.float32).view(3, 4).t(), "a transposed view")
    flag = torch.tensor([RANK == 1, True, False])
    dist.all_reduce(flag, OPS.MAX)
    assert flag.tolist() == [True, True, False]
    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert future.wait().tolist() == [2.0 * SIZE] * 2
    dist.destroy_process_group()
    assert not dist.is_initialized()


class Choice(nn.Module):
    """Four scalars, of which a pass uses one."""

    def __init__(self):
        super().__init__()
        self.scalars = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in range(4)])

    def forward(self, x, which):
        return x * self.scalars[which]


def unused_and_accumulated():
    """A parameter that a rank used only within ``no_sync`` is averaged by the next pass, on every rank."""
    dist.init_process_group("gloo")
    for view in (False, True):
        ddp = nn.parallel.DistributedDataParallel(Choice(), find_unused_parameters=True, gradient_as_bucket_view=view)
        x = torch.tensor([RANK + 1.0])
        with ddp.no_sync():
            ddp(x, 2 * RANK).sum().backward()
        ddp(x, 2 * RANK + 1).sum().backward()
        # PyTorch's answer.
        assert [p.grad.item() for p in ddp.parameters()] == [0.5, 0.5, 1.0, 1.0]
        for p in ddp.parameters():
            p.grad = None
        ddp(x, 0).sum().backward()
        assert [None if p.grad is None else p.grad.item() for p in ddp.parameters()] == [1.5, None, None, None]
    dist.destroy_process_group()


def failed_backward():
    """A backward pass that fails leaves buckets in flight: the next one waits for them before it writes there."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 400), nn.Linear(400, 400), nn.Linear(400, 1))
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    in_flight, waited = [], []

    class Slow:
        """The work of a bucket that takes a while."""

        def __init__(self, buffer):
            self.buffer, self.work = buffer, dist.all_reduce(buffer, dist.ReduceOp.AVG, async_op=True)
            in_flight.append(self)

        def wait(self):
            waited.append(self)
            self.work.wait()
            return self.buffer

    ddp.register_comm_hook(None, lambda state, bucket: Slow(bucket.buffer()))
    x = torch.ones(2, 4)

    def fail(grad):
        raise ValueError("on purpose")

    handle = model[0].weight.register_hook(fail)
    try:
        ddp(x).sum().backward()
        raise AssertionError("the hook did not fail")
    except ValueError:
        handle.remove()
    left = list(in_flight)
    assert left and not waited
    dist.barrier()
    for p in model.parameters():
        p.grad = None
    loss = ddp(x).sum()
    assert all(work in waited for work in left)
    loss.backward()
    want = [p.grad.clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = None
    model(x).sum().backward()
    for p, mean in zip(model.parameters(), want):
        same(p.grad, mean, "after a failed pass")
    dist.destroy_process_group()


def half_precision_hook():
    """The sum of 40,000 and 40,000 is infinite in half precision: gradients are divided first."""
    from rushlight.distributed.algorithms.ddp_comm_hooks import default_hooks

    dist.init_process_group("gloo")
    for hook in (default_hooks.fp16_compress_hook, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), None):
        # Without a hook, the parameter itself is in half precision.
        ddp = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False, dtype=torch.float32 if hook else torch.float16))
        if hook:
            ddp.register_comm_hook(None, hook)
        ddp(torch.tensor([[40000.0]], dtype=ddp.module.weight.dtype)).sum().backward()
        assert ddp.module.weight.grad.item() == 40000.0, hook
    dist.destroy_process_group()


def ring():
    """Every rank sends to the right before it receives from the left."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    out, into = torch.full((16 << 20,), float(RANK)), torch.zeros(16 << 20)
    sent = dist.isend(out, (RANK + 1) % SIZE)
    dist.irecv(into, (RANK - 1) % SIZE).wait()
    sent.wait()
    assert into.min().item() == into.max().item() == (RANK - 1) % SIZE
    dist.destroy_process_group()


def exits_early():
    """Rank 0 ends while another waits for its message."""
    dist.init_process_group("gloo")
    if RANK == 0:
        sys.exit(0)
    try:
        dist.recv(torch.zeros(1), 0)
    except RuntimeError as error:
        print(error)


def differentiable():
    """``torch.distributed.nn.functional``: the gradient of a rank's tensor is what all ranks' losses say of it."""
    import rushlight.distributed.nn.functional as functional

    dist.init_process_group("gloo")
    weights = [torch.arange(1.0, 4.0) * (r + 1) for r in range(SIZE)]
    total = sum(weights)

    def own():
        return torch.full((3,), RANK + 1.0, requires_grad=True)

    x = own()
    parts = functional.all_gather(x)
    assert [part[0].item() for part in parts] == [r + 1.0 for r in range(SIZE)]
    (sum(parts) * weights[RANK]).sum().backward()
    same(x.grad, total, "all_gather")
    x = own()
    out = functional.all_reduce(x)
    assert out[0].item() == SIZE * (SIZE + 1) / 2
    (out * weights[RANK]).sum().backward()
    same(x.grad, total, "all_reduce")
    x = own()
    out = functional.broadcast(x, 1)
    assert out[0].item() == 2.0
    (out * weights[RANK]).sum().backward()
    same(x.grad, total if RANK == 1 else torch.zeros(3), "broadcast")
    xs = [own() for _ in range(SIZE)]
    out = functional.reduce_scatter(torch.empty(3), xs)
    assert out[0].item() == SIZE * (SIZE + 1) / 2
    (out * weights[RANK]).sum().backward()
    for r, x in enumerate(xs):
        same(x.grad, weights[r], "reduce_scatter")
    dist.destroy_process_group()


def copies():
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method="env://")
    assert dist.get_rank() == RANK and dist.get_world_size() == SIZE and dist.is_initialized()
    for dtype in (*DTYPES, torch.bool):
        for count in SIZES:
            own, what = rank_tensor(RANK, count, dtype), (count, dtype)
            all_ranks = [rank_tensor(r, count, dtype) for r in range(SIZE)]
            x = own.clone()
            dist.broadcast(x, src=1)
            same(x, all_ranks[1], what)
            outputs = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(outputs, own)
            whole = torch.zeros(SIZE * count, dtype=dtype)
            dist.all_gather_into_tensor(whole, own)
            stacked = torch.zeros(SIZE, count, dtype=dtype)
            work = dist.all_gather_into_tensor(stacked, own, async_op=True)
            work.wait()
            for r in range(SIZE):
                same(outputs[r], all_ranks[r], what)
                same(whole[r * count : (r + 1) * count], all_ranks[r], what)
                same(stacked[r], all_ranks[r], what)
            gathered = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)] if RANK == 1 else None
            dist.gather(own, gathered, dst=1)
            if RANK == 1:
                for r in range(SIZE):
                    same(gathered[r], all_ranks[r], what)
            out = torch.zeros(count, dtype=dtype)
            dist.scatter(out, all_ranks if RANK == 0 else None, src=0)
            same(out, all_ranks[RANK], what)
            sent = [rank_tensor(RANK + r, count, dtype) for r in range(SIZE)]
            received = [torch.zeros(count, dtype=dtype) for _ in range(SIZE)]
            dist.all_to_all(received, sent)
            flat = torch.zeros(SIZE * count, dtype=dtype)
            dist.all_to_all_single(flat, torch.cat(sent))
            for r in range(SIZE):
                same(received[r], rank_tensor(r + RANK, count, dtype), what)
                same(flat[r * count : (r + 1) * count], rank_tensor(r + RANK, count, dtype), what)
    # Sizes that differ from rank to rank.
    outputs = [torch.zeros(r + 1) for r in range(SIZE)]
    dist.all_gather(outputs, torch.full((RANK + 1,), float(RANK)))
    assert [o.tolist() for o in outputs] == [[float(r)] * (r + 1) for r in range(SIZE)]
    send, receive = [r + 1 for r in range(SIZE)], [RANK + 1] * SIZE
    out = torch.zeros(sum(receive), 2)
    dist.all_to_all_single(out, torch.full((sum(send), 2), float(RANK)), receive, send)
    assert out[:, 0].tolist() == [float(r) for r in range(SIZE) for _ in range(RANK + 1)]
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    dist.destroy_process_group()


def objects():
    dist.init_process_group()
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK * 1000})
    assert [f["rank"] for f in found] == list(range(SIZE)) and len(found[2]["text"]) == 2000
    listed = [RANK, torch.full((2,), float(RANK)), "a"] if RANK == 1 else [None] * 3
    dist.broadcast_object_list(listed, src=1)
    assert listed[0] == 1 and listed[1].tolist() == [1.0, 1.0] and listed[2] == "a"
    gathered = [None] * SIZE if RANK == 0 else None
    dist.gather_object((RANK, "x"), gathered, dst=0)
    assert RANK or gathered == [(r, "x") for r in range(SIZE)]
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(SIZE)] if RANK == 0 else None, src=0)
    assert got == [f"for {RANK}"]
    # Messages: a ring, tags out of order, many at a time, objects.
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for count in (1, 300_001):
        inbox = torch.zeros(count)
        pending = [dist.irecv(inbox, left), dist.isend(torch.full((count,), float(RANK)), right)]
        for work in pending:
            work.wait()
        assert inbox[-1] == left
    first, second = torch.zeros(3), torch.zeros(3)
    a, b = dist.irecv(first, left, tag=1), dist.irecv(second, left, tag=2)
    dist.isend(torch.full((3,), 2.0), right, tag=2).wait()
    dist.isend(torch.full((3,), 1.0), right, tag=1).wait()
    b.wait(), a.wait()
    assert (first[0].item(), second[0].item()) == (1.0, 2.0)
    ordered = [torch.zeros(1) for _ in range(3)]
    works = [dist.irecv(t, left) for t in ordered]
    for i in range(3):
        dist.isend(torch.tensor([float(i)]), right).wait()
    works[2].wait(), works[0].wait()
    assert [t.item() for t in ordered] == [0.0, 1.0, 2.0]
    inbox = torch.zeros(5)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((5,), float(RANK)), right), dist.P2POp(dist.irecv, inbox, left)]):
        work.wait()
    assert inbox.tolist() == [float(left)] * 5
    if RANK == 0:
        dist.send(torch.arange(4), 1)
        dist.send_object_list(["hello", 1], 1)
    elif RANK == 1:
        into = torch.zeros(4, dtype=torch.int64)
        assert dist.recv(into, 0) == 0 and into.tolist() == [0, 1, 2, 3]
        box = [None, None]
        assert dist.recv_object_list(box, 0) == 0 and box == ["hello", 1]
    # Parts of the world.
    odd = dist.new_group([2, 1])
    if RANK in (1, 2):
        x = torch.tensor([float(RANK)])
        dist.all_reduce(x, group=odd)
        assert x.item() == 3.0 and dist.get_rank(odd) == 2 - RANK and dist.get_process_group_ranks(odd) == [2, 1]
        y = torch.tensor([float(RANK)])
        dist.broadcast(y, src=2, group=odd)
        assert y.item() == 2.0 and dist.get_global_rank(odd, 0) == 2
    else:
        assert odd == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(odd) == -1
    mesh = dist.init_device_mesh("cpu", (1, SIZE), mesh_dim_names=("outer", "inner"))
    assert mesh.get_coordinate() == [0, RANK] and mesh["inner"].size() == SIZE and mesh.get_local_rank("inner") == RANK
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh.get_group("outer"))
    assert x.item() == 1.0
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh["inner"].get_group())
    assert x.item() == SIZE
    store = dist.distributed_c10d._get_default_store()
    store.add("count", 1)
    dist.barrier()
    assert store.add("count", 0) == SIZE
    # Arguments that are wrong on this rank alone are said to be, and nothing has happened.
    for call, kind in (
        (lambda: dist.all_reduce([1]), TypeError), (lambda: dist.broadcast(torch.ones(1), src=SIZE), ValueError), (lambda: dist.broadcast(torch.ones(1)), ValueError),
        (lambda: dist.all_gather([torch.ones(1)], torch.ones(1)), RuntimeError), (lambda: dist.all_reduce(torch.ones(1), OPS.BAND), RuntimeError),
        (lambda: dist.all_gather_into_tensor(torch.ones(1), torch.ones(1)), ValueError), (lambda: dist.init_process_group(), ValueError),
        (lambda: dist.send(torch.ones(1), RANK), RuntimeError), (lambda: dist.new_group([0, 0]), ValueError),
    ):
        try:
            call()
        except kind:
            continue
        raise AssertionError(call)
    dist.destroy_process_group()


class Net(nn.Module):
    def __init__(self, spare=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)
        if spare:
            self.spare = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))


def train(wrap, steps=6, accumulate=False, spare=False):
    """Losses of a model trained on this rank's rows, and of one process on all of them."""
    torch.manual_seed(RANK)  # Rank 0's parameters must win.
    model = wrap(Net(spare))
    alone = Net(spare)
    alone.load_state_dict({k.removeprefix("module."): v.clone() for k, v in model.state_dict().items()})
    torch.manual_seed(7)
    x, y = torch.randn(4 * SIZE, 6), torch.randn(4 * SIZE, 1)
    mine = slice(4 * RANK, 4 * RANK + 4)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, alone)]
    losses = []
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        if accumulate:
            with model.no_sync():
                nn.functional.mse_loss(model(x[mine]), y[mine]).backward()
            nn.functional.mse_loss(alone(x), y).backward()
        loss = nn.functional.mse_loss(model(x[mine]), y[mine])
        loss.backward()
        whole = nn.functional.mse_loss(alone(x), y)
        whole.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, OPS.AVG)
        losses.append((mean.item(), whole.item()))
        for optimizer in optimizers:
            optimizer.step()
    return model, alone, losses


def agree(result, tolerance=1e-5):
    model, alone, losses = result
    for i, (a, b) in enumerate(losses):
        assert abs(a - b) <= tolerance * max(1.0, abs(b)), (i, losses)
    for (name, p), q in zip(model.named_parameters(), alone.parameters()):
        assert torch.allclose(p, q, rtol=10 * tolerance, atol=10 * tolerance), name


def data_parallel():
    import copy

    dist.init_process_group("gloo")
    DDP = nn.parallel.DistributedDataParallel
    hooks = __import__("rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks", fromlist=["_"])
    agree(train(DDP))
    agree(train(lambda m: DDP(m, gradient_as_bucket_view=True, bucket_cap_mb=0.0003)))
    agree(train(lambda m: DDP(m, bucket_cap_mb=0.0003), accumulate=True))
    agree(train(lambda m: DDP(m, gradient_as_bucket_view=True), accumulate=True))
    agree(train(lambda m: DDP(m, static_graph=True, bucket_cap_mb=0.0003), spare=True))
    result = train(lambda m: DDP(m, find_unused_parameters=True, bucket_cap_mb=0.0003), spare=True)
    agree(result)
    assert result[0].module.spare.weight.grad is None

    def hooked(hook, **options):
        def wrap(module):
            model = DDP(module, **options)
            model.register_comm_hook(None, hook)
            return model

        return wrap

    def summing(state, bucket):
        work = dist.all_reduce(bucket.buffer().div_(SIZE), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    agree(train(hooked(hooks.allreduce_hook)))
    agree(train(hooked(summing, bucket_cap_mb=0.0003)))
    agree(train(hooked(hooks.fp16_compress_hook)), 2e-2)
    agree(train(hooked(hooks.bf16_compress_wrapper(hooks.allreduce_hook))), 5e-2)
    # Thin matrices of full rank lose nothing; of rank 1 a little, which later gradients make up for.
    power = __import__("rushlight.distributed.algorithms.ddp_comm_hooks.powerSGD_hook", fromlist=["_"])

    def thin(hook, **options):
        def wrap(module):
            model = DDP(module)
            model.register_comm_hook(power.PowerSGDState(None, start_powerSGD_iter=2, **options), hook)
            return model

        return wrap

    agree(train(thin(power.powerSGD_hook, matrix_approximation_rank=64, min_compression_rate=0)), 1e-3)
    agree(train(thin(power.powerSGD_hook, min_compression_rate=0)), 0.5)
    agree(train(thin(power.batched_powerSGD_hook, matrix_approximation_rank=64)), 1e-3)
    post = __import__("rushlight.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook", fromlist=["_"])
    averagers = __import__("rushlight.distributed.algorithms.model_averaging.averagers", fromlist=["_"])
    model = DDP(nn.Linear(6, 1))
    model.register_comm_hook(post.PostLocalSGDState(None, None, 1, post_local_gradient_allreduce=False), post.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 6), float(step + RANK))).sum().backward()
        optimizer.step()
        averager.average_parameters(model.parameters())
        sums = [None] * SIZE
        dist.all_gather_object(sums, float(model.module.weight.sum()))
        apart = max(sums) - min(sums) > 1e-6
        assert apart == (step == 2), (step, sums)
    # A parameter that only some ranks use gets the mean.
    model = DDP(Net(True), find_unused_parameters=True)
    hidden = model.module.body(torch.ones(1, 6))
    model.module.forward = lambda x: model.module.spare(model.module.body(x)) if RANK == 0 else model.module.head(model.module.body(x))
    model(torch.ones(1, 6)).sum().backward()
    assert torch.allclose(model.module.spare.weight.grad, hidden.detach() / SIZE, atol=1e-6)
    del model.module.forward
    # A parameter without a part is an error that names it.
    model = DDP(Net(True))
    try:
        model(torch.ones(1, 6)).sum().backward()
        raise AssertionError("no error")
    except RuntimeError as error:
        assert "spare.weight" in str(error) and "find_unused_parameters=True" in str(error), error
    # Buffers are rank 0's; all ranks have the same after it.
    norm = DDP(nn.BatchNorm1d(2))
    norm(torch.full((3, 2), float(RANK)) + torch.arange(6.0).view(3, 2))
    norm(torch.ones(3, 2))
    means = [None] * SIZE
    dist.all_gather_object(means, norm.module.running_mean.tolist())
    assert all(m == means[0] for m in means), means
    # Statistics of all ranks.
    torch.manual_seed(3)
    rows = torch.randn(4 * SIZE, 3, 2)
    sync = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    plain = nn.BatchNorm1d(3)
    a, b = rows[4 * RANK : 4 * RANK + 4].clone().requires_grad_(), rows.clone().requires_grad_()
    weights = torch.linspace(0, 1, 4 * SIZE * 6).view(4 * SIZE, 3, 2)
    out = sync(a)
    (out * weights[4 * RANK : 4 * RANK + 4]).sum().backward()
    want = plain(b)
    (want * weights).sum().backward()
    assert torch.allclose(out, want[4 * RANK : 4 * RANK + 4], atol=1e-5) and torch.allclose(a.grad, b.grad[4 * RANK : 4 * RANK + 4], atol=1e-5)
    assert torch.allclose(sync[0].running_var, plain.running_var, atol=1e-6)
    # Inputs that run out on some ranks before others.
    for divide in (True, False):
        torch.manual_seed(0)
        model = DDP(nn.Linear(2, 1, bias=False))
        with torch.no_grad():
            model.module.weight.fill_(1.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        with model.join(divide_by_initial_world_size=divide):
            for _ in range(1 + RANK):
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
        want = 1.0 - 0.5 * sum((SIZE - i) / SIZE if divide else 1.0 for i in range(SIZE))
        assert torch.allclose(model.module.weight, torch.full((1, 2), want), atol=1e-6), (divide, model.module.weight, want)
    dup = copy.deepcopy(model)
    dup(torch.ones(1, 2)).sum().backward()
    assert dup.module.weight.grad.tolist() == [[1.0, 1.0]] and isinstance(model.state_dict()["module.weight"], torch.Tensor)
    # Every rank's model must be the same.
    try:
        DDP(nn.Linear(2 + (RANK == 1), 1))
        raise AssertionError("no error")
    except RuntimeError as error:
        assert "rank 0 has weight" in str(error) and "rank 1 has weight" in str(error), error
    dist.destroy_process_group()


def horovod():
    hvd = __import__("rushlight._horovod.torch", fromlist=["_"])
    hvd.init()
    assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (RANK, SIZE, RANK)
    assert hvd.allreduce(torch.tensor([float(RANK)])).item() == (SIZE - 1) / 2
    assert hvd.allreduce(torch.tensor([RANK]), op=hvd.Sum).item() == SIZE * (SIZE - 1) // 2
    x = torch.full((2,), float(RANK))
    assert hvd.allreduce_(x, average=False) is x and x[0].item() == SIZE * (SIZE - 1) / 2
    assert hvd.allgather(torch.full((RANK + 1, 2), float(RANK))).shape == (SIZE * (SIZE + 1) // 2, 2)
    assert hvd.broadcast_object({"r": RANK}, 1) == {"r": 1} and hvd.allgather_object(RANK) == list(range(SIZE))
    torch.manual_seed(RANK)
    model, alone = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (RANK + 1), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=2)
    alone.load_state_dict(model.state_dict())
    other = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(7)
    x, y = torch.randn(4 * SIZE, 6), torch.randn(4 * SIZE, 1)
    mine = slice(4 * RANK, 4 * RANK + 4)
    for _ in range(4):
        for m, o, part in ((model, optimizer, mine), (alone, other, slice(None))):
            o.zero_grad()
            for _ in range(2):
                nn.functional.mse_loss(m(x[part]), y[part]).backward()
            o.step()
    for p, q in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(p, q, atol=1e-5)
    hvd.shutdown()


def killed():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    dist.barrier()
    if RANK == 1:
        os._exit(9)
    try:
        while True:
            dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        print(f"seen: {error}")


def raised():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    if RANK == 1:
        raise ValueError("on purpose")
    try:
        dist.all_reduce(torch.ones(4))
    except dist.DistBackendError as error:
        print(f"seen: {error}")


def mismatched():
    dist.init_process_group("gloo", timeout=timedelta(seconds=40))
    try:
        dist.all_reduce(torch.ones(4 + (RANK == 1)))
    except dist.DistBackendError as error:
        print(f"seen: {error}")


def late():
    dist.init_process_group("gloo")
    try:
        if RANK != 1:
            dist.monitored_barrier(timeout=timedelta(seconds=0.5))
    except dist.DistBackendError as error:
        print(f"seen: {error}")
    dist.barrier()


def stores(path, port):
    """The ways to meet, one after another."""
    for method in (f"file://{path}/a", f"tcp://127.0.0.1:{port}", f"file://{path}/b?rank={RANK}&world_size={SIZE}"):
        query = "?" in method
        dist.init_process_group("nccl", init_method=method, **({} if query else {"rank": RANK, "world_size": SIZE}))
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == SIZE and dist.get_backend() == "nccl"
        dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", int(port), SIZE, RANK == 0, timedelta(seconds=30))
    for _ in range(2):
        dist.init_process_group("ccl", store=store, rank=RANK, world_size=SIZE)
        dist.barrier()
        dist.destroy_process_group()
    store.set(f"bye {RANK}", "x")
    if RANK == 0:
        store.wait([f"bye {r}" for r in range(SIZE)], timedelta(seconds=30))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
