"""Collectives on tensors, with PyTorch's signatures."""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

from .. import _C
from ._group import DistBackendError, DistStoreError, _get_default_store, _not_member, _rank_not_in_group, _resolve, get_group_rank, get_process_group_ranks
from ._stores import _seconds
from ._work import Work, _Done

__all__ = [
    "ReduceOp", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier", "reduce", "reduce_op", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "supports_complex",
]

Tensor = _C.Tensor


class _RedOp:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<RedOpType.{self.name}>"

    def __reduce__(self):
        return getattr, (ReduceOp, self.name)

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, _RedOp) and self.name == other.name


class ReduceOp(_RedOp):
    """Reductions over ranks. ``AVG`` needs floating dtypes, the bitwise ones integers.

    >>> from rushlight.distributed import ReduceOp
    >>> ReduceOp.SUM
    <RedOpType.SUM>
    """

    RedOpType = _RedOp

    def __init__(self, op):
        super().__init__(op.name)


for _name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"):
    setattr(_RedOp, _name, _RedOp(_name))


def _make_nccl_premul_sum(factor):
    """A sum of what each rank has multiplied by a factor, for ``all_reduce``."""
    made = ReduceOp(ReduceOp.PREMUL_SUM)
    made.factor = factor
    return made


class _DeprecatedOps:
    """``torch.distributed.reduce_op``, the old name of ``ReduceOp``."""

    def __getattr__(self, name):
        return getattr(ReduceOp, name)


reduce_op = _DeprecatedOps()


def _op(op):
    if not isinstance(op, _RedOp):
        raise TypeError(f"expected a ReduceOp, got {op!r}")
    if op.name == "PREMUL_SUM":
        raise NotImplementedError("ReduceOp.PREMUL_SUM is an op of all_reduce, made by _make_nccl_premul_sum; multiply before other collectives")
    return op.name.lower()


def _root(pg, given, group_given, what, call):
    """Converts a root, given as a rank of the world or of the group, to a rank of the group."""
    if given is not None and group_given is not None:
        raise ValueError(f"{call}: can't specify both {what} and group_{what}")
    if group_given is not None:
        return group_given
    if given is None:
        raise ValueError(f"{call}: must specify {what} or group_{what}")
    return get_group_rank(pg, given)


def _one(tensor, name, call):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor, but got {type(tensor)} instead ({call}).")


def _many(tensors, name, call):
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor] ({call}).")
    return list(tensors)


def supports_complex(op):
    """Whether a reduction is defined for complex numbers."""
    return _op(op) in ("sum", "avg")


def _refuse_complex(tensors, op, call):
    if any(t.is_complex() for t in tensors) and not supports_complex(op):
        raise ValueError(f"{call} does not support {op} on complex tensors")


def _reals(tensors):
    """Complex tensors as pairs of real numbers, in the same memory: sums and copies are the pairs'."""
    return [_C._torch.view_as_real(t.detach()) if t.is_complex() else t for t in tensors]


def _run(pg, call, outputs, inputs, async_op, op="sum", root=0):
    if any(t.is_complex() for t in (*outputs, *inputs)):
        work = pg._group.submit(call, _reals(outputs), _reals(inputs), (op, root), bool(async_op))
        return Work(work, outputs) if async_op else None
    work = pg._group.submit(call, outputs, inputs, (op, root), bool(async_op))
    return Work(work, outputs) if async_op else None


def _parts(tensor, sizes, call):
    """Views of a contiguous tensor along its first dimension."""
    if not tensor.is_contiguous():
        raise ValueError(f"{call}: Tensors must be contiguous")
    return list(tensor.detach().split(sizes, 0))


def _flat_parts(tensor, count, call):
    if not tensor.is_contiguous():
        raise ValueError(f"{call}: Tensors must be contiguous")
    flat = tensor.detach().view(-1)
    size = flat.numel() // count
    return [flat.narrow(0, i * size, size) for i in range(count)]


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces a tensor over all ranks, in place."""
    _one(tensor, "tensor", "all_reduce")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_reduce")
    if tensor.is_sparse:
        return _all_reduce_sparse(tensor, op, pg, async_op)
    if hasattr(op, "factor"):
        tensor.detach().mul_(op.factor)
        op = ReduceOp.SUM
    _refuse_complex([tensor], op, "all_reduce")
    return _run(pg, "all_reduce", [tensor], [], async_op, _op(op))


def _all_reduce_sparse(tensor, op, pg, async_op):
    """The sum of sparse tensors in coordinates: every rank gathers the entries of all. Finished when it returns, also if it is asynchronous."""
    if _op(op) != "sum":
        raise ValueError(f"all_reduce: sparse tensors are summed, {op} is for dense ones: call .to_dense() first")
    own = tensor.detach().coalesce()
    counts = [_C._torch.zeros(3, dtype=_C.int64) for _ in range(pg.size())]
    _run(pg, "all_gather", counts, [_C.tensor([own._nnz(), own.sparse_dim(), own.dense_dim()], dtype=_C.int64)], False)
    if any(other.tolist()[1:] != [own.sparse_dim(), own.dense_dim()] for other in counts):
        raise ValueError(f"all_reduce: the ranks' tensors have other sparse and dense dimensions than this one's {own.sparse_dim(), own.dense_dim()}")
    parts = []
    for entries, dim in ((own.indices(), 1), (own.values(), 0)):
        shape = lambda n: [*entries.shape[:dim], n, *entries.shape[dim + 1 :]]
        others = [_C._torch.empty(shape(int(other[0])), dtype=entries.dtype, device=entries.device) for other in counts]
        _run(pg, "all_gather", others, [entries.contiguous()], False)
        parts.append(_C._torch.cat(others, dim))
    total = tensor.make(*parts, tensor.shape).coalesce()
    tensor._index, tensor._data = total._index, total._data
    tensor._coalesced_(True)
    return Work(_Done(), [tensor]) if async_op else None


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """``all_reduce`` of several tensors in one call."""
    tensors = [tensors] if isinstance(tensors, Tensor) else _many(tensors, "tensors", "all_reduce_coalesced")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_reduce_coalesced")
    _refuse_complex(tensors, op, "all_reduce")
    return _run(pg, "all_reduce", tensors, [], async_op, _op(op))


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Copies the tensor of rank ``src`` to all ranks."""
    _one(tensor, "tensor", "broadcast")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("broadcast")
    return _run(pg, "broadcast", [tensor], [], async_op, root=_root(pg, src, group_src, "src", "broadcast"))


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """Reduces the ranks' tensors to rank ``dst``."""
    _one(tensor, "tensor", "reduce")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("reduce")
    return _run(pg, "reduce", [tensor], [], async_op, _op(op), _root(pg, dst, group_dst, "dst", "reduce"))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Collects every rank's tensor on every rank; shapes may differ."""
    tensor_list = _many(tensor_list, "tensor_list", "all_gather")
    _one(tensor, "tensor", "all_gather")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_gather")
    return _run(pg, "all_gather", tensor_list, [tensor], async_op)


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """Collects tensors of one shape into one tensor, concatenated or stacked."""
    _one(output_tensor, "output_tensor", "all_gather_into_tensor")
    _one(input_tensor, "input_tensor", "all_gather_into_tensor")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_gather_into_tensor")
    if output_tensor.numel() != input_tensor.numel() * pg.size():
        raise ValueError(
            f"all_gather_into_tensor: output tensor size must be equal to world_size times input tensor size: "
            f"{tuple(output_tensor.shape)} for {pg.size()} times {tuple(input_tensor.shape)}"
        )
    work = _run(pg, "all_gather", _flat_parts(output_tensor, pg.size(), "all_gather_into_tensor"), [input_tensor], async_op)
    return _of(work, output_tensor)


def _of(work, result):
    if work is not None:
        work._result = [result]
    return work


def _all_gather_base(output_tensor, input_tensor, group=None, async_op=False):
    """The old name of ``all_gather_into_tensor``."""
    return all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """``all_gather`` of several tensors: a list of outputs for each rank."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_gather_coalesced")
    inputs = _many(input_tensor_list, "tensor_list", "all_gather_coalesced")
    lists = [_many(outputs, "output_tensor_lists", "all_gather_coalesced") for outputs in output_tensor_lists]
    if any(len(outputs) != len(inputs) for outputs in lists):
        raise ValueError(f"all_gather_coalesced: each rank's list needs an output for each of the {len(inputs)} inputs")
    flat = [outputs[i] for i in range(len(inputs)) for outputs in lists]
    return _run(pg, "all_gather_coalesced", flat, inputs, async_op)


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduces the ranks' lists and gives each rank the tensor at its index."""
    _one(output, "output", "reduce_scatter")
    input_list = _many(input_list, "input_list", "reduce_scatter")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("reduce_scatter")
    return _run(pg, "reduce_scatter", [output], input_list, async_op, _op(op))


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """``reduce_scatter`` of the parts of one tensor."""
    _one(output, "output", "reduce_scatter_tensor")
    _one(input, "input", "reduce_scatter_tensor")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("reduce_scatter_tensor")
    if input.numel() != output.numel() * pg.size():
        raise ValueError(
            f"reduce_scatter_tensor: input tensor must be the same size as output size times world size: "
            f"{tuple(input.shape)} for {pg.size()} times {tuple(output.shape)}"
        )
    return _run(pg, "reduce_scatter", [output], _flat_parts(input, pg.size(), "reduce_scatter_tensor"), async_op, _op(op))


def _reduce_scatter_base(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """The old name of ``reduce_scatter_tensor``."""
    return reduce_scatter_tensor(output, input, op, group, async_op)


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """Sends one tensor to each rank and receives one from each; shapes may differ."""
    outputs = _many(output_tensor_list, "output_tensor_list", "all_to_all")
    inputs = _many(input_tensor_list, "input_tensor_list", "all_to_all")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_to_all")
    return _run(pg, "all_to_all", outputs, inputs, async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """``all_to_all`` of the parts of one tensor along its first dimension; equal parts unless sizes are given."""
    _one(output, "output", "all_to_all_single")
    _one(input, "input", "all_to_all_single")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("all_to_all_single")

    def parts(tensor, sizes, what):
        if sizes:
            if sum(sizes) != tensor.shape[0]:
                raise ValueError(f"all_to_all_single: Split sizes doesn't match total dim 0 size: {what} has {tensor.shape[0]} rows, sizes {list(sizes)}")
            return _parts(tensor, list(sizes), "all_to_all_single")
        if tensor.dim() == 0 or tensor.shape[0] % pg.size():
            raise ValueError(f"all_to_all_single: Tensor's dim 0 does not divide equally across group size: {what} {tuple(tensor.shape)}, {pg.size()} ranks")
        return _flat_parts(tensor, pg.size(), "all_to_all_single")

    work = _run(pg, "all_to_all", parts(output, output_split_sizes, "output"), parts(input, input_split_sizes, "input"), async_op)
    return _of(work, output)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """Collects the ranks' tensors on rank ``dst``, 0 unless given, which passes a list of outputs."""
    _one(tensor, "tensor", "gather")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("gather")
    root = 0 if dst is None and group_dst is None else _root(pg, dst, group_dst, "dst", "gather")
    outputs = _many(gather_list or [], "gather_list", "gather")
    if pg.rank() == root and not outputs:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if pg.rank() != root and outputs:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    return _run(pg, "gather", outputs, [tensor], async_op, root=root)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """Gives each rank one of the tensors of rank ``src``, 0 unless given."""
    _one(tensor, "tensor", "scatter")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("scatter")
    root = 0 if src is None and group_src is None else _root(pg, src, group_src, "src", "scatter")
    inputs = _many(scatter_list or [], "scatter_list", "scatter")
    if pg.rank() == root and not inputs:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    if pg.rank() != root and inputs:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    return _run(pg, "scatter", [tensor], inputs, async_op, root=root)


def barrier(group=None, async_op=False, device_ids=None):
    """Waits for all ranks. Devices need no separate barrier: results are ready when a collective returns."""
    if device_ids is not None and not isinstance(device_ids, list):
        raise TypeError("Invalid function argument: device_ids type should be List[int]")
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("barrier")
    return _run(pg, "barrier", [], [], async_op)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier with its own timeout. The error names the first missing rank, or all with ``wait_all_ranks``."""
    pg = _resolve(group)
    if _rank_not_in_group(pg):
        return _not_member("monitored_barrier")
    seconds = pg._timeout() if timeout is None else _seconds(timeout)
    store, ranks = _get_default_store(), get_process_group_ranks(pg)
    prefix = f"monitored_barrier/{pg.group_name}/{pg._barriers}"
    pg._barriers += 1
    if pg.rank() != 0:
        store.set(f"{prefix}/{pg.rank()}", b"")
        try:
            # Rank 0 needs extra time to find the missing ranks.
            store.wait([f"{prefix}/end"], timedelta(seconds=2 * seconds + 5))
        except DistStoreError:
            raise DistBackendError(f"monitored_barrier: rank {ranks[0]} did not reach the barrier within {2 * seconds + 5} s") from None
        text = store.get(f"{prefix}/end").decode()
        if text:
            text = (
                f"Rank {ranks[pg.rank()]} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank {ranks[0]}: {text}"
            )
    else:
        missing, late, deadline = [], False, monotonic() + seconds
        for member in range(1, pg.size()):
            if not wait_all_ranks and monotonic() >= deadline:
                # No time is left to ask the others.
                late = True
                break
            try:
                store.wait([f"{prefix}/{member}"], max(0.0, deadline - monotonic()))
            except DistStoreError:
                missing.append(ranks[member])
                if not wait_all_ranks:
                    break
        text = f"Rank {ranks[0]} timed out in monitoredBarrier after {int(seconds * 1000)} ms" if late else ""
        if missing:
            names = ", ".join(map(str, missing))
            text = f"{'Ranks' if wait_all_ranks else 'Rank'} {names} failed to pass monitoredBarrier in {int(seconds * 1000)} ms"
        store.set(f"{prefix}/end", text)
    if text:
        raise DistBackendError(text)
    return None
