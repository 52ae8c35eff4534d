"""What the ranks of ``test_peers.py`` run: ``python peers_ranks.py FUNCTION``, with the launcher's variables set."""

import importlib.util
import os
import pathlib
import sys
import warnings
from datetime import timedelta

if importlib.util.find_spec("rushlight") is None:
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))

import rushlight as torch
from rushlight import distributed as dist

RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def profiled():
    """Events of collectives have PyTorch's names, and the shapes of what is sent."""
    dist.init_process_group("gloo")
    with torch.autograd.profiler.profile(record_shapes=True) as profiler:
        dist.all_reduce(torch.ones(2, 3))
        dist.broadcast(torch.ones(4), 0, async_op=True).wait()
        dist.all_gather([torch.empty(5) for _ in range(SIZE)], torch.ones(5))
        (dist.send if RANK == 0 else dist.recv)(torch.ones(6), 1 - RANK)
    found = {event.name: event for event in profiler.function_events if event.is_async}
    side = "gloo:send" if RANK == 0 else "gloo:recv"
    shapes = {"gloo:all_reduce": [[2, 3]], "gloo:broadcast": [[4]], "gloo:all_gather": [[5]], side: [[6]]}
    assert {name: event.input_shapes for name, event in found.items()} == shapes, found
    assert all(event.count == 1 and event.cpu_time >= 0 for event in found.values())
    dist.destroy_process_group()


def complex_numbers():
    """Sums of complex numbers are exact; what has no order or product of pairs is refused before anything is sent."""
    dist.init_process_group("gloo")
    x = torch.tensor([1 + 2j, 3 - 1j]) * (RANK + 1)
    dist.all_reduce(x)
    assert x.tolist() == [3 + 6j, 9 - 3j], x
    parts = [torch.empty(1, dtype=torch.complex64) for _ in range(SIZE)]
    dist.all_gather(parts, torch.tensor([RANK + 1j]))
    assert [part.item() for part in parts] == [1j, 1 + 1j]
    try:
        dist.all_reduce(x, dist.ReduceOp.MAX)
    except ValueError as error:
        assert "all_reduce does not support" in str(error) and "complex" in str(error)
    else:
        raise AssertionError("MAX of complex numbers")
    # The same group goes on.
    x = torch.ones(2) * (RANK + 1)
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    assert x.tolist() == [6.0, 6.0], x
    dist.destroy_process_group()


def sparse_sums():
    """The sum of sparse tensors, whose ranks have other entries, is coalesced on every rank."""
    dist.init_process_group("gloo")
    for async_op in (False, True):
        own = torch.sparse_coo_tensor([[0, RANK, RANK], [1, 2, 2]], [1.0, 2.0, 3.0], (4, 3))
        work = dist.all_reduce(own, async_op=async_op)
        if async_op:
            work.wait()
        expected = torch.zeros(4, 3)
        expected[0, 1] = SIZE
        expected[:SIZE, 2] = 5.0
        assert own.is_coalesced() and torch.equal(own.to_dense(), expected)
    none = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0), (4, 3))
    dist.all_reduce(none)
    assert none._nnz() == 0
    for call, error in ((lambda: dist.all_reduce(own, dist.ReduceOp.MAX), "sparse tensors are summed"),):
        try:
            call()
        except ValueError as told:
            assert error in str(told)
        else:
            raise AssertionError("a maximum of sparse tensors")
    dist.destroy_process_group()


def monitored():
    """Each side of a monitored barrier says in PyTorch's words who is missing."""
    dist.init_process_group("gloo")
    dist.monitored_barrier()
    if RANK != 1:
        text = "Rank 1 failed to pass monitoredBarrier" if RANK == 0 else f"Rank {RANK} successfully reached monitoredBarrier, but received errors while waiting"
        try:
            dist.group.WORLD.monitored_barrier(0.5)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError("rank 1 is missing")
    dist.barrier()
    dist.destroy_process_group()


def methods_of_groups():
    """What communication hooks call: a group's own methods, with PyTorch's lists of lists."""
    dist.init_process_group("gloo")
    pg, x = dist.group.WORLD, torch.tensor([RANK + 1.0])
    assert pg.allreduce([x.clone()]).get_future().then(lambda future: future.value()[0]).wait().tolist() == [3.0]
    assert pg.allreduce(x.clone(), dist.ReduceOp.MAX).result()[0].tolist() == [2.0]
    y = x.clone()
    pg.broadcast([y], 1).wait()
    assert y.tolist() == [2.0]
    parts = [torch.empty(1), torch.empty(1)]
    pg.allgather([parts], [x]).wait()
    assert [part.item() for part in parts] == [1.0, 2.0]
    pg.reduce_scatter([y], [[x, 10 * x]]).wait()
    assert y.item() == (3.0 if RANK == 0 else 30.0)
    whole = torch.empty(2)
    pg._allgather_base(whole, x).wait()
    assert whole.tolist() == [1.0, 2.0]
    pg.gather([parts] if RANK == 0 else [], [-x], 0).wait()
    assert RANK or [part.item() for part in parts] == [-1.0, -2.0]
    pg.scatter([y], [[whole[:1], whole[1:]]] if RANK == 1 else [], 1).wait()
    assert y.item() == RANK + 1.0
    if RANK == 0:
        pg.send([x], 1, 4).wait()
    else:
        pg.recv_anysource([y], 4).wait()
        assert y.item() == 1.0
    pg.barrier().wait()
    # A hook of data parallelism that uses its group.
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    ddp.register_comm_hook(pg, lambda group, bucket: group.allreduce([bucket.buffer() / SIZE]).get_future().then(lambda future: future.value()[0]))
    ddp(x[None]).sum().backward()
    assert ddp.module.weight.grad.item() == 1.5
    group = dist.group.WORLD
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=77), group)
    assert group._timeout() == 77.0
    dist.destroy_process_group()


def optimizers_made_before(folder):
    """FSDP's wrapper and ZeRO-3 take optimizers of the whole parameters, as accelerate passes them, and give whole weights and states to rank 0."""
    from rushlight.distributed import fsdp

    deepspeed = __import__("rushlight._deepspeed", fromlist=["_"])
    wrapper = fsdp.FullyShardedDataParallel
    dist.init_process_group("gloo")
    x = torch.arange(12.0).reshape(4, 3) / 10

    def made():
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def train(net, optimizer, rows, steps):
        for _ in range(steps):
            net(rows).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def same(found, expected):
        assert set(found) == set(expected) and all(torch.allclose(found[k], v, atol=1e-6) for k, v in expected.items()), (found, expected)

    plain, optimizer = made()
    train(plain, optimizer, x, 3)
    expected = {name: value.clone() for name, value in plain.state_dict().items()}
    train(plain, optimizer, x, 1)

    net, optimizer = made()
    before = list(net.parameters())
    wrapped = wrapper(net, use_orig_params=True)
    assert all(p is q for p, q in zip(before, wrapped.parameters())) and before[0].shape == (4, 3)
    train(wrapped, optimizer, x[RANK::2], 3)
    same(wrapped.state_dict(), expected)
    settings = fsdp.FullStateDictConfig(rank0_only=True), fsdp.FullOptimStateDictConfig(rank0_only=True)
    with wrapper.state_dict_type(wrapped, fsdp.StateDictType.FULL_STATE_DICT, *settings):
        states = wrapper.optim_state_dict(wrapped, optimizer)
        assert bool(states) == (RANK == 0)
        loaded = wrapper.optim_state_dict_to_load(wrapped, optimizer, states if RANK == 0 else None)
    fresh = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    fresh.load_state_dict(loaded)
    train(wrapped, fresh, x[RANK::2], 1)
    same(wrapped.state_dict(), plain.state_dict())

    net, optimizer = made()
    zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config={"train_batch_size": 4, "zero_optimization": zero})
    for _ in range(3):
        engine.backward(engine(x[RANK::2]).pow(2).mean())
        engine.step()
    weights = engine._zero3_consolidated_16bit_state_dict()
    assert engine.zero_gather_16bit_weights_on_model_save() and (weights is None) == (RANK == 1)
    assert engine.save_16bit_model(folder)
    if RANK == 0:
        same(weights, expected)
        same(torch.load(f"{folder}/pytorch_model.bin"), expected)
        part = torch.zeros(100)[:2]
        copied = deepspeed.checkpoint.utils.clone_tensors_for_torch_save({"a": [part], "b": 1})
        assert copied["b"] == 1 and copied["a"][0].untyped_storage().nbytes() == 8
    engine.destroy()
    dist.destroy_process_group()


def any_source():
    """A receive without a source takes the next message of its tag from any rank, and says whose it was; two in a row take two."""
    dist.init_process_group("gloo")
    group = dist.new_group([2, 0, 1])
    for tag, pg in ((0, None), (7, None), (0, group)):
        if RANK == 0:
            got = torch.empty(3)
            first = dist.recv(got, group=pg, tag=tag)
            assert got.tolist() == [float(first)] * 3, (first, got)
            handle = dist.irecv(got, group=pg, tag=tag)
            assert handle.wait()
            last = dist.get_process_group_ranks(pg)[handle._source_rank()]
            assert {first, last} == {1, 2} and got.tolist() == [float(last)] * 3, (first, last, got)
        else:
            dist.send(torch.full((5,), -1.0), 0, tag=99)
            dist.send(torch.full((3,), float(RANK)), 0, group=pg, tag=tag)
    if RANK == 0:
        # Earlier messages of another tag are still there, and two that are posted first are received in order.
        left = [dist.irecv(torch.empty(5), tag=99) for _ in range(6)]
        left[5].wait()
        assert all(handle.is_completed() for handle in left) and sum(handle._source_rank() for handle in left) == 9
    # Rank 1's next message must not arrive before rank 2's last.
    dist.barrier()
    with torch.autograd.profiler.profile() as profiler:
        if RANK == 0:
            dist.recv(torch.empty(1))
        elif RANK == 1:
            dist.send(torch.ones(1), 0)
    assert RANK > 0 or "gloo:recvAnySource" in [event.name for event in profiler.function_events]
    dist.destroy_process_group()


def private_names_of_data_parallelism():
    """``_sync_module_states`` copies one rank's states; ``prepare_for_backward`` lets a forward pass of ``no_sync`` end with the exchange."""
    dist.init_process_group("gloo")
    model = torch.nn.BatchNorm1d(2)
    for state in [*model.parameters(), *model.buffers()]:
        state.detach().fill_(RANK + 3)
    dist.utils._sync_module_states(model, dist.group.WORLD, 1 << 20, 1, ["bias"])
    means = {name: state.float().mean().item() for name, state in model.state_dict().items()}
    assert means == {"weight": 4.0, "bias": 3.0 + RANK, "running_mean": 4.0, "running_var": 4.0, "num_batches_tracked": 4.0}, means
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    for prepared, gradient in ((False, 1.0 + RANK), (True, 1.5)):
        ddp.zero_grad()
        with ddp.no_sync():
            out = ddp(torch.tensor([[1.0 + RANK]]))
        if prepared:
            ddp.reducer.prepare_for_backward(out)
        out.sum().backward()
        assert ddp.module.weight.grad.item() == gradient, (prepared, ddp.module.weight.grad)
    dist.destroy_process_group()


def horovod():
    """Process sets, exchanges of parts, and gradients through Horovod's collectives, with Horovod's own answers."""
    hvd = __import__("rushlight._horovod.torch", fromlist=["_"])
    hvd.init()
    even, odd = hvd.add_process_set([0]), hvd.add_process_set([1])
    own = even if RANK == 0 else odd
    assert (own.rank(), own.size(), own.included(), hvd.global_process_set.size()) == (0, 1, True, 2)
    assert hvd.allreduce(torch.tensor([5.0]), process_set=own).item() == 5.0
    try:
        hvd.allreduce(torch.tensor([5.0]), process_set=odd if RANK == 0 else even)
    except ValueError as error:
        assert "not in the process set" in str(error)
    else:
        raise AssertionError("a collective of others")
    assert hvd.remove_process_set(odd) and not hvd.remove_process_set(odd) and hvd.remove_process_set(even)
    rows = torch.arange(3).float() + 10 * RANK
    got, counts = hvd.alltoall(rows, splits=torch.tensor([1, 2] if RANK == 0 else [2, 1]))
    assert (got.tolist(), counts.tolist()) == (([0.0, 10.0, 11.0], [1, 2]) if RANK == 0 else ([1.0, 2.0, 12.0], [2, 1]))
    assert hvd.reducescatter(torch.arange(3), op=hvd.Sum).tolist() == ([0, 2] if RANK == 0 else [4])
    assert hvd.allreduce(torch.tensor([3 + RANK]), op=hvd.Average).item() == 3, "a mean of integers is cut"
    for call, factor in (
        (lambda t: hvd.allreduce(t, op=hvd.Sum), 2.0), (lambda t: hvd.reducescatter(t, op=hvd.Sum), 2.0), (hvd.reducescatter, 1.0),
        (lambda t: hvd.alltoall(t), 1.0), (lambda t: hvd.broadcast(t, 0), 1.0 if RANK == 0 else 0.0), (hvd.allgather, 1.0),
    ):
        x = torch.ones(4, requires_grad=True)
        out = call(x)
        out.backward(torch.ones_like(out))
        assert x.grad.tolist() == [factor] * 4, (call, x.grad)
    model = torch.nn.Linear(2, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), gradient_predivide_factor=2.0)
    model(torch.full((1, 2), RANK + 1.0)).sum().backward()
    assert model.weight.grad.tolist() == [[1.5, 1.5]], model.weight.grad
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(w.message) for w in caught)
    # A job may be left and joined again, at once.
    for _ in range(3):
        hvd.shutdown()
        hvd.init()
        assert hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item() == SIZE
    hvd.shutdown()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
