"""The cross entropy of a linear layer's scores in chunks of the batch, so that all scores are never in memory at once."""

from __future__ import annotations

import dataclasses

from .. import _C

_POLICIES = ("accurate", "compact", "auto")


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """Chunking of ``linear_cross_entropy``.

    ``batch_chunk_size`` rows at a time, or as many as ``chunking_method`` finds: ``"aspect_ratio"`` makes the scores of a chunk take as much memory as the
    whole input, ``"aspect_ratio:N"`` an N-th of that. Scores are computed again in the backward pass, so that ``retain_graph=True`` and further derivatives work
    for every ``allow_retain_graph``. Products of half precision accumulate in float32 under every ``acc_policy``.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: _C.dtype | None = None

    def __post_init__(self):
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}; expected one of {', '.join(map(repr, _POLICIES))}")
        if self.chunking_method not in (None, "auto"):
            name, _, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or not (factor or "1").isdigit() or int(factor or 1) < 1 or self.chunking_method.endswith(":"):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if not (self.batch_chunk_size is None or isinstance(self.batch_chunk_size, int) and self.batch_chunk_size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {self.batch_chunk_size!r}")
        if self.acc_dtype not in (None, _C.float16, _C.bfloat16, _C.float32, _C.float64):
            raise ValueError(f"acc_dtype must be one of {{None, torch.float16, torch.bfloat16, torch.float32, torch.float64}}, got {self.acc_dtype!r}.")

    def rows(self, batch: int, features: int, classes: int) -> int:
        """Rows per chunk."""
        method = None if self.chunking_method == "auto" and self.batch_chunk_size is not None else self.chunking_method
        if method is None:
            return max(1, min(self.batch_chunk_size or batch, batch))
        factor = int(method.partition(":")[2] or 1) if method != "auto" else 1
        portions = -(-classes // features)
        target = max(1, -(-batch // portions))
        rows = max(1, min((1 << (target - 1).bit_length()) // factor, batch))
        if method == "auto":
            # If features outnumber classes, one chunk would save nothing.
            most = max(1, batch * classes // (4 * features))
            rows = max(1, min(rows, 1 << (most.bit_length() - 1)))
        if self.batch_chunk_size not in (None, rows):
            raise ValueError(
                f"batch_chunk_size (={self.batch_chunk_size}) and chunking_method ('{method}') give different chunk sizes ({self.batch_chunk_size} vs {rows}); "
                "pass only one."
            )
        return rows

    def check_dtype(self, dtype: _C.dtype) -> None:
        half = dtype in (_C.float16, _C.bfloat16)
        if self.acc_dtype not in (None, dtype) and not (half and self.acc_dtype == _C.float32):
            raise NotImplementedError(f"linear_cross_entropy: input of {dtype} accumulates in {_C.float32 if half else dtype}, not in {self.acc_dtype}")


def in_portions(options, input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing):
    """The loss of a batch ``[rows, features]`` against classes, or against their probabilities ``[rows, classes]``."""
    from ..utils.checkpoint import checkpoint

    (batch, features), classes = input.shape, linear_weight.shape[0]
    options.check_dtype(input.dtype)
    rows = options.rows(batch, features, classes)
    each = "none" if reduction == "none" else "sum"

    def part(x, y):
        logits = _C._nn.linear(x, linear_weight, linear_bias)
        return _C._nn.cross_entropy(logits, y, weight=weight, reduction=each, ignore_index=ignore_index, label_smoothing=label_smoothing)

    parts = [checkpoint(part, x, y, use_reentrant=False) for x, y in zip(input.split(rows), target.split(rows))]
    if reduction == "none":
        return _C._torch.cat(parts)
    # Chunks in order, in float32 at least: a sum of half precision would lose the later ones.
    wide = input.dtype if input.dtype == _C.float64 else _C.float32
    total = sum(p.to(wide) for p in parts)
    if reduction == "mean":
        if target.is_floating_point():
            total = total / batch
        else:
            kept = target != ignore_index
            counted = kept if weight is None else weight.to(wide)[target.masked_fill(~kept, 0)] * kept
            total = total / counted.sum()
    return total.to(input.dtype)
