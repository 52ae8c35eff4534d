"""Splits batches into microbatches and merges their outputs."""

from __future__ import annotations

from ... import _C
from ...utils._pytree import tree_flatten, tree_unflatten

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

#: The dimension that is split where nothing else is said.
DEFAULT_CHUNK_DIM = 0


class TensorChunkSpec:
    """The dimension in which a tensor is split."""

    def __init__(self, split_dim):
        self.split_dim = split_dim

    def __repr__(self):
        return f"{self.__class__.__module__}.{self.__class__.__name__}({self.split_dim})"

    def __str__(self):
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims):
        """A spec for each positional argument."""
        return tuple(TensorChunkSpec(dim) for dim in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims):
        """A spec for each keyword argument."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Every microbatch gets the whole value."""


class _CustomReducer:
    """Combines outputs by a function, in order."""

    def __init__(self, init_value, reduce_fn):
        self.init_value, self.reduce_fn = init_value, reduce_fn


class _LossReducer(_CustomReducer):
    """Combines losses."""


sum_reducer = _LossReducer(0.0, lambda a, b: a + b)


def _split(value, spec, chunks):
    if spec is _Replicate or isinstance(spec, _Replicate) or not isinstance(value, _C.Tensor):
        return [value] * chunks
    if not isinstance(spec, TensorChunkSpec):
        raise TypeError(f"microbatches: expected a TensorChunkSpec, got {spec!r}")
    if value.dim() == 0:
        raise ValueError("microbatches: a tensor without dimensions cannot be split; pass _Replicate in the chunk spec")
    size = value.size(spec.split_dim)
    if size < chunks:
        raise RuntimeError(f"microbatches: dimension {spec.split_dim} of size {size} does not split into {chunks}")
    return list(value.tensor_split(chunks, spec.split_dim))


def _split_tree(value, spec, chunks):
    leaves, tree = tree_flatten(value)
    specs, spec_tree = tree_flatten(spec)
    if len(specs) == 1:
        specs = specs * len(leaves)
    if len(specs) != len(leaves):
        raise ValueError(f"microbatches: {len(leaves)} values and {len(specs)} chunk specs: {spec_tree}")
    parts = [_split(leaf, one, chunks) for leaf, one in zip(leaves, specs)]
    return [tree_unflatten([part[i] for part in parts], tree) for i in range(chunks)]


def split_args_kwargs_into_chunks(args, kwargs, chunks, args_chunk_spec=None, kwargs_chunk_spec=None):
    """Lists of positional and keyword arguments, one for each microbatch."""
    kwargs = kwargs or {}
    default = TensorChunkSpec(DEFAULT_CHUNK_DIM)
    if args_chunk_spec is None:
        args_chunk_spec = (default,) * len(args)
    if kwargs_chunk_spec is None:
        kwargs_chunk_spec = dict.fromkeys(kwargs, default)
    if len(args_chunk_spec) != len(args):
        raise ValueError(f"microbatches: {len(args)} arguments and {len(args_chunk_spec)} chunk specs")
    if set(kwargs_chunk_spec) != set(kwargs):
        raise ValueError(f"microbatches: keyword arguments {sorted(kwargs)} and chunk specs of {sorted(kwargs_chunk_spec)}")
    split_args = [_split_tree(value, spec, chunks) for value, spec in zip(args, args_chunk_spec)]
    split_kwargs = {name: _split_tree(value, kwargs_chunk_spec[name], chunks) for name, value in kwargs.items()}
    return (
        [tuple(value[i] for value in split_args) for i in range(chunks)],
        [{name: value[i] for name, value in split_kwargs.items()} for i in range(chunks)],
    )


def merge_chunks(chunks, chunk_spec):
    """Puts microbatches' outputs together: tensors are concatenated, other values are the first one's."""
    leaves, tree = zip(*(tree_flatten(chunk) for chunk in chunks))
    if chunk_spec is None:
        specs = [TensorChunkSpec(DEFAULT_CHUNK_DIM)] * len(leaves[0])
    else:
        specs = tree_flatten(chunk_spec)[0]
    merged = []
    for i, spec in enumerate(specs):
        values = [leaf[i] for leaf in leaves]
        if isinstance(spec, _CustomReducer):
            value = spec.init_value
            for one in values:
                value = spec.reduce_fn(value, one)
        elif isinstance(spec, TensorChunkSpec) and isinstance(values[0], _C.Tensor):
            value = _C._torch.cat(values, spec.split_dim) if values[0].dim() else _C._torch.stack(values)
        else:
            value = values[0]
        merged.append(value)
    return tree_unflatten(merged, tree[0])
