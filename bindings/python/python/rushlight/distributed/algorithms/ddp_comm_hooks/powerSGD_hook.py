"""PowerSGD: sends gradients as products of two thin matrices (Vogels, Karimireddy and Jaggi, 2019)."""

from __future__ import annotations

from .... import _C
from ....futures import Future
from ... import distributed_c10d as dist
from . import default_hooks

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


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


def _approximate(state, bucket, gradients):
    """Replaces a bucket by an approximation of the ranks' mean: its gradients one by one, or all as one matrix. The work is in Rust (``crates/dist``)."""
    index, buffer = bucket.index(), bucket.buffer()
    seconds = state.q_memory_dict.get(index, []) if state.warm_start else []
    settings = (
        state.matrix_approximation_rank, float(state.min_compression_rate), bool(state.use_error_feedback), float(state.orthogonalization_epsilon),
        state.random_seed + state.iter * 7919,
    )
    error, firsts, seconds, sent = _C._power_sgd(
        dist._resolve(state.process_group)._group, buffer, gradients, state.error_dict.get(index), list(seconds), settings
    )
    if error is not None:
        state.error_dict[index] = error
    state.p_memory_dict[index], state.q_memory_dict[index] = firsts, seconds
    state.total_numel_before_compression += buffer.numel()
    state.total_numel_after_compression += sent
    state.maybe_increase_iter(bucket)
    future = Future()
    future.set_result(buffer)
    return future


def _first(state, bucket):
    """The mean itself, in the iterations before compression; ``None`` later."""
    if state.iter >= state.start_powerSGD_iter:
        return None
    state.maybe_increase_iter(bucket)
    return default_hooks.allreduce_hook(state.process_group, bucket)


def powerSGD_hook(state, bucket):
    """Approximates each matrix of a bucket; small tensors and vectors are sent whole."""
    return _first(state, bucket) or _approximate(state, bucket, bucket.gradients())


def batched_powerSGD_hook(state, bucket):
    """Approximates a bucket as one square matrix: faster and less accurate."""
    return _first(state, bucket) or _approximate(state, bucket, None)
