"""PowerSGD: sends gradients as products of two thin matrices (Vogels, Karimireddy and Jaggi, 2019)."""

from __future__ import annotations

import math

from .... import _C
from ....futures import Future
from ... import distributed_c10d as dist
from . import default_hooks

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

_torch = _C._torch


class PowerSGDState:
    """Settings of the hook, and its state between iterations: the second factors and the approximation errors."""

    def __init__(
        self, process_group, matrix_approximation_rank=1, start_powerSGD_iter=1_000, min_compression_rate=2, use_error_feedback=True, warm_start=True,
        orthogonalization_epsilon=0, random_seed=0, compression_stats_logging_frequency=10_000, batch_tensors_with_same_shape=False,
    ):
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be applied after the first "
                "two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank, self.start_powerSGD_iter = matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.random_seed = random_seed
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        # Matrices of one shape are multiplied one by one either way: the results are the same.
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.iter = 0
        self.error_dict, self.p_memory_dict, self.q_memory_dict = {}, {}, {}
        self.total_numel_before_compression = self.total_numel_after_compression = 0

    def maybe_increase_iter(self, bucket):
        """Counts an iteration at its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self):
        """The compression ratio, and the numbers of elements before and after."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after else 0, before, after


def _orthogonalise(matrix, epsilon):
    """Makes the columns orthonormal, one after another."""
    columns, epsilon = matrix.shape[1], epsilon if epsilon else 1e-30
    for i in range(columns):
        column = matrix[:, i : i + 1]
        column.div_(column.norm() + epsilon)
        if i:
            # The residual of a column that depends on earlier ones is noise: make it orthogonal to them, and zero it if
            # it is tiny.
            former = matrix[:, :i]
            column.sub_(former @ (former.t() @ column))
            length = column.norm()
            column.mul_((length > 1e-3).to(column.dtype) / (length + epsilon))
        if i + 1 < columns:
            rest = matrix[:, i + 1 :]
            rest.sub_(column * (column * rest).sum(dim=0, keepdim=True))


def _start(state, key, shape, like):
    """The same numbers on all ranks."""
    generator = _C.Generator()
    generator.manual_seed(state.random_seed + state.iter * 7919 + key)
    return _torch.randn(shape, generator=generator, dtype=_C.float32).to(dtype=like.dtype, device=like.device)


def _mean(group, tensors):
    """The means of a list, sent as one tensor."""
    if not tensors:
        return
    flat = _torch.cat([t.reshape(-1) for t in tensors])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG, group=group)
    offset = 0
    for t in tensors:
        t.copy_(flat[offset : offset + t.numel()].view(t.shape))
        offset += t.numel()


def _done(value):
    future = Future()
    future.set_result(value)
    return future


def _approximate(state, bucket, matrices, whole):
    group = state.process_group if state.process_group is not None else dist.group.WORLD
    index, buffer = bucket.index(), bucket.buffer()
    if state.use_error_feedback:
        if index in state.error_dict:
            buffer.add_(state.error_dict[index])
        else:
            state.error_dict[index] = _torch.zeros_like(buffer)
        before = buffer.clone()
    _mean(group, whole)
    rank = state.matrix_approximation_rank
    ranks = [min(rank, *m.shape) for m in matrices]
    seconds = state.q_memory_dict.get(index)
    if seconds is None or not state.warm_start:
        seconds = [_start(state, i, (m.shape[1], r), m) for i, (m, r) in enumerate(zip(matrices, ranks))]
        state.q_memory_dict[index] = seconds
    for q in seconds:
        _orthogonalise(q, state.orthogonalization_epsilon)
    firsts = [m @ q for m, q in zip(matrices, seconds)]
    state.p_memory_dict[index] = firsts
    _mean(group, firsts)
    for p, m, q in zip(firsts, matrices, seconds):
        _orthogonalise(p, state.orthogonalization_epsilon)
        q.copy_(m.t() @ p)
    _mean(group, seconds)
    for p, m, q in zip(firsts, matrices, seconds):
        m.copy_(p @ q.t())
    if state.use_error_feedback:
        # Gradients that travelled whole have left nothing out: their means differ from this rank's by what the others
        # had.
        error = before - buffer
        offset = 0
        kept = {t.data_ptr() for t in whole}
        for gradient in bucket.gradients():
            if gradient.data_ptr() in kept:
                error[offset : offset + gradient.numel()].zero_()
            offset += gradient.numel()
        state.error_dict[index] = error
    state.total_numel_before_compression += buffer.numel()
    state.total_numel_after_compression += sum(t.numel() for t in whole + firsts + seconds)


def powerSGD_hook(state, bucket):
    """Approximates each matrix of a bucket; small tensors and vectors are sent whole."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(state.process_group, bucket)
    matrices, whole = [], []
    for gradient in bucket.gradients():
        matrix = gradient.view(gradient.shape[0], -1) if gradient.dim() > 1 else None
        rank = 0 if matrix is None else min(state.matrix_approximation_rank, *matrix.shape)
        if rank and sum(matrix.shape) * rank * state.min_compression_rate < matrix.numel():
            matrices.append(matrix)
        else:
            whole.append(gradient)
    _approximate(state, bucket, matrices, whole)
    state.maybe_increase_iter(bucket)
    return _done(bucket.buffer())


def batched_powerSGD_hook(state, bucket):
    """Approximates a bucket as one square matrix: faster and less accurate."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return default_hooks.allreduce_hook(state.process_group, bucket)
    group = state.process_group if state.process_group is not None else dist.group.WORLD
    index, buffer = bucket.index(), bucket.buffer()
    if state.use_error_feedback:
        if index in state.error_dict:
            buffer.add_(state.error_dict[index])
        before = buffer.clone()
    side = math.isqrt(buffer.numel() - 1) + 1 if buffer.numel() else 0
    square = _torch.zeros(side * side, dtype=buffer.dtype, device=buffer.device)
    square[: buffer.numel()].copy_(buffer)
    square = square.view(side, side)
    rank = min(state.matrix_approximation_rank, side)
    q = state.q_memory_dict.get(index)
    if q is None or not state.warm_start:
        q = _start(state, index, (side, rank), square)
    _orthogonalise(q, state.orthogonalization_epsilon)
    p = square @ q
    _mean(group, [p])
    _orthogonalise(p, state.orthogonalization_epsilon)
    q = square.t() @ p
    _mean(group, [q])
    state.p_memory_dict[index], state.q_memory_dict[index] = p, q
    buffer.copy_((p @ q.t()).view(-1)[: buffer.numel()])
    if state.use_error_feedback:
        state.error_dict[index] = before - buffer
    state.maybe_increase_iter(bucket)
    return _done(buffer)
