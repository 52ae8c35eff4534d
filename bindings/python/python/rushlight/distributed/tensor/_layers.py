"""The sharding rules of layers, attention and losses."""

from ... import _C
from . import _overlap
from ._api import DTensor
from ._ops import _flat, _inputs, out, plan_of, prepare, refusal, run
from ._rows import LETTERS, argument, letters_of
from .placement_types import Replicate

Tensor = _C.Tensor
torch = _C._torch


def linear(func, name, args, kwargs):
    made = _overlap.linear(argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight"))
    if made is None:
        return run(func, name, ("linear", "", [], False), args, kwargs)
    bias = argument(args, kwargs, 2, "bias")
    return made if bias is None else run(torch.add, "add", ("pointwise", "sum", [], False), (made, bias), {})


def attention(func, name, args, kwargs):
    """By batch and heads; with a mask and without ``is_causal`` also by the queries' positions."""
    names = ("query", "key", "value", "attn_mask")
    query, key, value, mask = inputs = [argument(args, kwargs, at, key) for at, key in enumerate(names)]
    rank = query.dim()
    if mask is None and query.shape[:-2] == key.shape[:-2]:
        return run(func, name, ("attention", "", [], False), args, kwargs)
    if rank < 3 or key.dim() != rank or value.dim() != rank or (mask is not None and mask.dim() > rank):
        shapes = [tuple(t.shape) for t in inputs if t is not None]
        raise RuntimeError(f"{name}: query, key and value should have as many dimensions, at least 3, and a mask no more; their shapes are {shapes}")
    # Dimensions that are broadcast are whole, and so are heads that share keys (enable_gqa).
    lead = "".join(LETTERS[d] if query.shape[d] == key.shape[d] == value.shape[d] else "_" for d in range(rank - 2))
    rows = "_" if mask is None or argument(args, kwargs, 5, "is_causal", False) else LETTERS[rank - 2]
    own = [f"{lead}{rows}_", f"{lead}__", f"{lead}__"]
    if mask is not None:
        skip = rank - mask.dim()
        own.append("".join(c if mask.shape[d] == query.shape[skip + d] else "_" for d, c in enumerate(own[0][skip:])))
    return run(func, name, ("labels", f"{','.join(own)}->{own[0]}", [], False), args, kwargs, [t for t in inputs if t is not None])


def norm(func, name, args, kwargs):
    t, count = args[0], len(argument(args, kwargs, 1, "normalized_shape"))
    return run(func, name, ("along", "", list(range(t.dim() - count, t.dim())), False), args, kwargs)


def group_norm(name, args, kwargs):
    t, weight, bias = args[0], argument(args, kwargs, 2, "weight"), argument(args, kwargs, 3, "bias")
    letters = "N" + "_" * (t.dim() - 1)
    inputs = [t, *(w for w in (weight, bias) if w is not None)]
    return inputs, f"{','.join([letters, '_', '_'][: len(inputs)])}->{letters}"


def _of_channels(t, count):
    """Labels of a batch and of ``count`` vectors with a value for each channel."""
    return ",".join([letters_of(t), *[LETTERS[1]] * count])


def batch_norm(func, name, args, kwargs):
    """By running values as any op of elements; in training by the values of the whole batch, of all ranks that have parts of it."""
    names = {"input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    t, mean, var, weight, bias, training, momentum, eps = (argument(args, kwargs, at, key, default) for at, (key, default) in enumerate(names.items()))
    _inputs(name, _flat(args, kwargs))
    if t.dim() < 2:
        raise RuntimeError(f"{name} of a DTensor: the input should have a batch and channels, its shape is {tuple(t.shape)}")
    letters, vectors = letters_of(t), [v for v in (weight, bias) if v is not None]
    if not training:
        stats = [v for v in (mean, var) if v is not None]
        return run(func, name, ("labels", f"{_of_channels(t, len(stats) + len(vectors))}->{letters}", [], False), args, kwargs, [t, *stats, *vectors])
    count = t.numel() // max(t.shape[1], 1)
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {t.shape}")
    dims, shape = [d for d in range(t.dim()) if d != 1], [-1 if d == 1 else 1 for d in range(t.dim())]
    wide = lambda x: x.float() if x.dtype in (_C.float16, _C.bfloat16) else x

    def mean_of(function, x):
        """Means of channels, which no rank has in parts."""
        found = run(lambda local: function(wide(local)).mean(dims, keepdim=True), "mean", ("reduce", "mean", dims, True), (x,), {})
        return found.redistribute(placements=[Replicate() if p.is_partial() else p for p in found._placements])

    batch_mean = mean_of(lambda x: x, t)
    centered = run(lambda x, m: wide(x) - m, name, ("pointwise", "", [], False), (t, batch_mean), {})
    batch_var = mean_of(Tensor.square, centered)
    for running, found in ((mean, batch_mean), (var, batch_var)):
        if running is not None:
            # Running variances are those of samples.
            share = count / (count - 1) if running is var else 1.0
            flat = run(lambda x: x.detach().flatten() * share, name, ("labels", f"{letters_of(t, dims)}->b", [], False), (found,), {})
            values = flat.redistribute(placements=running._placements)._local_tensor
            running._local_tensor.lerp_(values.to(running.dtype), momentum)

    def scaled(x, variance, weight, bias):
        x = x * (variance + eps).rsqrt()
        x = x if weight is None else x * weight.reshape(shape)
        return (x if bias is None else x + bias.reshape(shape)).to(t.dtype)

    text = f"{letters},{letters_of(t, dims)}{',b' * len(vectors)}->{letters}"
    return run(scaled, name, ("labels", text, [], False), (centered, batch_var, weight, bias), {}, [centered, batch_var, *vectors])


def instance_norm(func, name, args, kwargs):
    names = {"input": None, "running_mean": None, "running_var": None, "weight": None, "bias": None, "use_input_stats": True}
    t, *vectors, by_input = (argument(args, kwargs, at, key, default) for at, (key, default) in enumerate(names.items()))
    if by_input and vectors[0] is not None:
        raise NotImplementedError(f"{name} of a DTensor: running values are not updated; use track_running_stats=False, or to_local()")
    letters = "ab" + ("_" * (t.dim() - 2) if by_input else LETTERS[2 : t.dim()])
    vectors = [v for v in vectors if v is not None]
    return run(func, name, ("labels", f"{letters}{',b' * len(vectors)}->{letters}", [], False), args, kwargs, [t, *vectors])


def embedding(func, name, args, kwargs):
    ids, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    if not isinstance(ids, DTensor):
        ids = DTensor._of(ids, weight._mesh, (Replicate(),) * weight._mesh.ndim, ids.shape)
    if not isinstance(weight, DTensor):
        raise refusal("embedding", [ids])
    if any(v not in (None, 2.0, False) for v in (*args[3:], *(kwargs.get(k) for k in ("max_norm", "norm_type", "scale_grad_by_freq", "sparse")))):
        raise NotImplementedError("embedding of a DTensor: max_norm, scale_grad_by_freq and sparse are not supported")
    plan = plan_of("embedding", ("embedding", "", [], False), [weight, ids])
    table, index = prepare(plan, [weight, ids]).values()
    padding = argument(args, kwargs, 2, "padding_idx")
    start, size = _C._local_part(list(weight._shape), weight._mesh._core, plan.inputs[0])[0]
    if size == weight._shape[0]:
        return out(plan, func(index, table, padding), weight._mesh)
    index = index - start
    inside = (index >= 0) & (index < size)
    if padding is not None:
        padding = padding % weight._shape[0] - start
        padding = padding if 0 <= padding < size else None
    if size == 0:
        # A rank without rows: zeros, whose gradient is empty.
        return out(plan, table.sum() * torch.zeros((*index.shape, table.shape[1]), dtype=table.dtype, device=table.device), weight._mesh)
    # Ids of other ranks give zeros: the ranks' sum is the whole.
    found = func(index.clamp(0, max(size - 1, 0)), table, padding) * inside.unsqueeze(-1).to(table.dtype)
    return out(plan, found, weight._mesh)


def loss_of_classes(func, name, args, kwargs):
    scores, target = args[0], argument(args, kwargs, 1, "target")
    how = kwargs.get("reduction", "mean")
    from .parallel.loss import enabled, vocabulary_loss

    mesh = scores._mesh if isinstance(scores, DTensor) else target._mesh
    classes = 1 if len(scores.shape) > 1 else 0
    if name == "cross_entropy" and enabled() and any(p.is_shard(classes) for p in scores._placements):
        return vocabulary_loss(scores, target, args[2:], kwargs)
    if not isinstance(target, DTensor):
        target = DTensor._of(target, mesh, (Replicate(),) * mesh.ndim, target.shape)
    if kwargs.get("weight") is not None or len(args) > 2:
        raise NotImplementedError(f"{name} of a DTensor: class weights are not supported; use full_tensor()")
    if len(target.shape) == len(scores.shape):
        raise NotImplementedError(f"{name} of a DTensor: class probabilities as targets are not supported; use full_tensor()")
    # The mean's divisor depends on the targets that are ignored.
    word = {"none": "none", "sum": "sum"}.get(how, "other")
    rest = {k: v for k, v in kwargs.items() if k not in ("target", "input")}
    return run(func, name, ("loss", word, [], False), (scores, target), rest)


def one_hot(name, args, kwargs):
    if argument(args, kwargs, 1, "num_classes", -1) < 0:
        raise NotImplementedError("one_hot of a DTensor: give num_classes, as ranks may have different largest classes")
    letters = letters_of(args[0])
    return [args[0]], f"{letters}->{letters}_"


def loss_of_elements(func, name, args, kwargs):
    """A loss that is a mean or a sum over elements."""
    how = kwargs.get("reduction", "mean")
    if kwargs.get("weight") is not None or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None or how not in ("mean", "sum", "none"):
        raise NotImplementedError(f"{name} of a DTensor: give reduction as mean, sum or none, and no weight; or use full_tensor()")
    losses = run(func, name, ("pointwise", "", [], False), args, kwargs | {"reduction": "none"})
    return losses if how == "none" else run(getattr(Tensor, how), name, ("reduce", how, list(range(losses.dim())), False), (losses,), {})
