"""The sharding rules of ops: ``RULES`` has a row for each op's name.

A row says how the op's arguments name a rule of the compiled part (``crates/dist/src/dtensor``). Most are texts of labels, as ``"NC__, OC__, +O -> NO__"`` of a
convolution: a letter for each dimension that may be sharded, a capital if no rank may be left without a part, ``_`` for one that must be whole, ``+`` before what
is added, and ``sum:`` before the text if parts of a sum go in and come out. An op that cannot run on shards is gathered where PyTorch does so; others have no row and are refused by name.
"""

import string

from ... import _C
from ._api import DTensor
from ._index import get_item, set_item
from ._layers import attention, batch_norm, embedding, group_norm, instance_norm, linear, loss_of_classes, loss_of_elements, norm, one_hot
from ._ops import _flat, _inputs, _map, fill_random, out, plan_of, prepare, refusal, run
from ._rows import LETTERS, along, argument, dim_of, dims_of, ends, extremum, fixed, gathered, labelled, letters_of, listed, reduction, refused
from .placement_types import Replicate, _codes

Tensor = _C.Tensor
torch = _C._torch


# Element by element.


def additive(func, name, args, kwargs):
    """Summands give summands, if no plain number is among them."""
    numbers = not all(isinstance(a, DTensor) for a in (*args[:2], *([kwargs["other"]] if "other" in kwargs else [])))
    return run(func, name, ("pointwise", "" if numbers else "sum", [], False), args, kwargs)


def division(func, name, args, kwargs):
    word = "first" if isinstance(args[0], DTensor) and not kwargs.get("rounding_mode") else ""
    return run(func, name, ("pointwise", word, [], False), args, kwargs)


def dropout(func, name, args, kwargs):
    """Of a shard, each rank draws its part by its own generator. Of a replica, the ranks drop what rank 0 does, as one process with its seed would."""
    t = args[0]
    if not argument(args, kwargs, 1, "p", 0.5) or not argument(args, kwargs, 2, "training", True):
        return t
    if argument(args, kwargs, 3, "inplace", False):
        raise NotImplementedError("dropout of a DTensor: inplace is not supported; use the result")
    whole = tuple(Replicate() if p.is_partial() else p for p in t._placements)
    if not any(p.is_replicate() and t._mesh.size(i) > 1 for i, p in enumerate(whole)):
        return run(func, name, ("pointwise", "product", [], False), args, kwargs)
    mask = DTensor._of(torch.empty_like(t.detach()._local_tensor), t._mesh, whole, t._shape)
    fill_random(lambda values: values.copy_(func(torch.ones_like(values), argument(args, kwargs, 1, "p", 0.5))), (mask,), {})
    return run(torch.mul, name, ("pointwise", "product", [], False), (t, mask), {})


# In place.


def in_place(func, name, args, kwargs):
    target = args[0]
    if not isinstance(target, DTensor) or (name == "copy_" and isinstance(args[1], Tensor) and not isinstance(args[1], DTensor) and args[1].dim() > 0):
        raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators!")
    inputs = _inputs(name, _flat(args, kwargs))
    locals_ = {id(target): target._local_tensor}
    for t in inputs:
        if t is not target:
            if t._shape != target._shape and t.numel() != 1:
                raise refusal(name, inputs)
            placements = target._placements if t._shape == target._shape else [Replicate()] * target._mesh.ndim
            if name in ("mul_", "div_"):
                placements = [Replicate() if p.is_partial() else p for p in placements]
            locals_[id(t)] = t.redistribute(placements=placements)._local_tensor
    swap = lambda t: locals_.get(id(t), t)
    if any(p.is_partial() for p in target._placements) and name not in ("zero_", "mul_", "div_", "copy_"):
        raise refusal(name, inputs)
    func(*(_map(a, swap) for a in args), **{k: _map(v, swap) for k, v in kwargs.items()})
    return target


# New tensors.


def like(func, name, args, kwargs):
    t = args[0]
    placements = tuple(Replicate() if p.is_partial() else p for p in t._placements)
    return DTensor._of(func(t._local_tensor, *args[1:], **kwargs), t._mesh, placements, t._shape)


def random_like(func, name, args, kwargs):
    t = args[0]
    placements = tuple(Replicate() if p.is_partial() else p for p in t._placements)
    made = DTensor._of(torch.empty_like(t._local_tensor, **kwargs), t._mesh, placements, t._shape)
    return fill_random(Tensor.uniform_ if name == "rand_like" else Tensor.normal_, (made,), {})


def new(func, name, args, kwargs):
    """``new_zeros`` and the like: of the tensor's size they lie as it does, others are replicated."""
    t, rest, kwargs = args[0], args[1:], dict(kwargs)
    values = ()
    if name == "new_full":
        values = (argument(args, kwargs, 2, "fill_value"),)
        kwargs.pop("fill_value", None)
        rest = rest[:1]
    sizes = listed(rest, kwargs, "size")
    kwargs.pop("size", None)
    placements = tuple(p if tuple(sizes) == t._shape and not p.is_partial() else Replicate() for p in t._placements)
    local = [size for _, size in _C._local_part(sizes, t._mesh._core, _codes(placements))]
    return DTensor._of(func(t._local_tensor, local, *values, **kwargs), t._mesh, placements, sizes)


# Shapes.


def view_size(name, args, kwargs):
    """The target size of ops that change the shape only."""
    t, rest = args[0], args[1:]
    shape = list(t._shape)
    if name in ("view", "reshape", "view_as", "reshape_as"):
        rest = list(rest[0].shape) if name.endswith("_as") else listed(rest, kwargs, "size" if "size" in kwargs else "shape")
        if -1 in rest:
            known = 1
            for n in rest:
                known *= n if n != -1 else 1
            rest[rest.index(-1)] = t.numel() // max(known, 1)
        return rest
    if name in ("flatten", "ravel"):
        start, end = (dim_of(argument(args, kwargs, at, key, other), len(shape), name) for at, key, other in ((1, "start_dim", 0), (2, "end_dim", -1)))
        size = 1
        for n in shape[start : end + 1]:
            size *= n
        return shape[:start] + [size] + shape[end + 1 :]
    dim = argument(args, kwargs, 1, "dim")
    if name == "unflatten":
        sizes = list(argument(args, kwargs, 2, "sizes"))
        dim = dim_of(dim, len(shape), name)
        if -1 in sizes:
            known = 1
            for n in sizes:
                known *= n if n != -1 else 1
            sizes[sizes.index(-1)] = shape[dim] // known
        return shape[:dim] + sizes + shape[dim + 1 :]
    if name == "unsqueeze":
        dim = dim_of(dim, len(shape) + 1, name)
        return shape[:dim] + [1] + shape[dim:]
    dims = range(len(shape)) if dim is None else dims_of(t, dim, name)
    return [n for d, n in enumerate(shape) if d not in dims or n != 1]


def view(func, name, args, kwargs):
    t = args[0]
    if name in ("view", "reshape") and len(args) == 2 and isinstance(args[1], _C.dtype):
        raise NotImplementedError("view of a DTensor as another dtype is not supported; use to_local()")
    plan = plan_of(name, ("view", "", [int(n) for n in view_size(name, args, kwargs)], False), [t])
    return out(plan, prepare(plan, [t])[id(t)].reshape(plan.local), t._mesh, name)


def permutation(name, args, kwargs):
    t, n = args[0], args[0].dim()
    if name in ("t", "T"):
        return list(range(n))[::-1]
    if name in ("mT", "mH", "H", "adjoint"):
        return [*range(n - 2), n - 1, n - 2]
    if name == "permute":
        return dims_of(t, listed(args[1:], kwargs, "dims"), name)
    a, b = argument(args, kwargs, 1, "source" if name.startswith("move") else "dim0"), argument(args, kwargs, 2, "destination" if name.startswith("move") else "dim1")
    if name.startswith("move"):
        source, target = dims_of(t, a, name), dims_of(t, b, name)
        rest = iter(d for d in range(n) if d not in source)
        return [source[target.index(d)] if d in target else next(rest) for d in range(n)]
    if a is None:
        a, b = kwargs.get("axis0"), kwargs.get("axis1")
    a, b = dim_of(a, n, name), dim_of(b, n, name)
    order = list(range(n))
    order[a], order[b] = order[b], order[a]
    return order


def permute(func, name, args, kwargs):
    t, order = args[0], permutation(name, args, kwargs)
    plan = plan_of(name, ("permute", "", order, False), [t])
    local = prepare(plan, [t])[id(t)].permute(order)
    return out(plan, local.conj() if name in ("mH", "H", "adjoint") else local, t._mesh, name)


def expand(func, name, args, kwargs):
    """Dimensions of size 1 repeated, and new ones before; the others keep their placements."""
    t = args[0]
    sizes = list(args[1].shape) if name == "expand_as" else listed(args[1:], kwargs, "size")
    more = len(sizes) - t.dim()
    if more < 0:
        raise RuntimeError(f"{name}: the number of sizes provided ({len(sizes)}) must be greater or equal to the number of dimensions in the tensor ({t.dim()})")
    grown = [d for d, n in enumerate(sizes[more:]) if n not in (-1, t._shape[d])]
    letters = letters_of(t, grown)
    plan = plan_of(name, ("labels", f"sum:{letters}->{'_' * more}{letters}", [], False), [t])
    local = [n if d < more or d - more in grown else -1 for d, n in enumerate(sizes)]
    return out(plan, prepare(plan, [t])[id(t)].expand(local), t._mesh, name)


def repeat(name, args, kwargs):
    t = args[0]
    counts = listed(args[1:], kwargs, "dims" if name == "tile" else "repeats" if "repeats" in kwargs else "sizes")
    counts = [1] * (t.dim() - len(counts)) + counts if name == "tile" else counts
    more = len(counts) - t.dim()
    letters = letters_of(t, [d for d, n in enumerate(counts[more:]) if n != 1])
    return [t], f"sum:{letters}->{'_' * more}{letters}"


def repeat_interleave(name, args, kwargs):
    t, dim = args[0], argument(args, kwargs, 2, "dim")
    if not isinstance(argument(args, kwargs, 1, "repeats"), int):
        raise NotImplementedError("repeat_interleave of a DTensor: repeats must be one number; use full_tensor()")
    letters = letters_of(t, dims_of(t, dim, name))
    return [t], f"sum:{letters}->{'_' if dim is None else letters}"


def diagonal(name, args, kwargs):
    t = args[0]
    whole = [dim_of(argument(args, kwargs, at, key, other), t.dim(), name) for at, key, other in ((2, "dim1", 0), (3, "dim2", 1))]
    letters = letters_of(t, whole)
    return [t], f"sum:{letters}->{letters.replace('_', '')}_"


def unfold(name, args, kwargs):
    letters = letters_of(args[0], [dim_of(argument(args, kwargs, 1, "dimension"), args[0].dim(), name)])
    return [args[0]], f"sum:{letters}->{letters}_"


def pad(name, args, kwargs):
    t, sizes = args[0], list(argument(args, kwargs, 1, "pad"))
    letters = letters_of(t, [t.dim() - 1 - i // 2 for i, n in enumerate(sizes) if n])
    return [t], f"{letters}->{letters}"


def cat(func, name, args, kwargs):
    tensors = list(argument(args, kwargs, 0, "tensors"))
    dim = dim_of(argument(args, kwargs, 1, "dim", 0), tensors[0].dim(), name)
    return run(func, name, ("cat", "", [dim], False), args, kwargs, tensors)


def stack(func, name, args, kwargs):
    tensors = list(argument(args, kwargs, 0, "tensors"))
    dim = dim_of(argument(args, kwargs, 1, "dim", 0), tensors[0].dim() + 1, name)
    tensors = [view(Tensor.unsqueeze, "unsqueeze", (t, dim), {}) for t in tensors]
    return run(torch.cat, name, ("cat", "", [dim], False), (tensors, dim), {}, tensors)


# Places along a dimension.


def picked(name, args, kwargs):
    """``gather``, ``take_along_dim``: an index as long as the tensor may be sharded with it, along the dimension on its own."""
    t, (at, key) = args[0], (1, "indices") if name == "take_along_dim" else (2, "index")
    index = argument(args, kwargs, at, key)
    dim = argument(args, kwargs, 2 if at == 1 else 1, "dim")
    if dim is None or index.dim() != t.dim():
        raise NotImplementedError(f"{name} of a DTensor: give a dimension, and an index of as many dimensions as the tensor")
    dim = dim_of(dim, t.dim(), name)
    if at == 1 and any(a != b for d, (a, b) in enumerate(zip(t._shape, index.shape)) if d != dim):
        raise NotImplementedError("take_along_dim of a DTensor: sizes that are broadcast are not supported; expand the tensors first")
    same = "".join(LETTERS[d] if d != dim and t._shape[d] == index.shape[d] else "_" for d in range(t.dim()))
    own = "".join("z" if d == dim else c for d, c in enumerate(same))
    return [t, index], f"first:{same},{own}->{own}"


def put(name, args, kwargs):
    """``scatter`` and ``scatter_add``: dimensions in which all sizes agree may be sharded."""
    t, index = args[0], argument(args, kwargs, 2, "index")
    dim = dim_of(argument(args, kwargs, 1, "dim"), t.dim(), name)
    source = argument(args, kwargs, 3, "src", kwargs.get("value"))
    inputs = [t, index, source] if isinstance(source, Tensor) and source.dim() else [t, index]
    letters = "".join(LETTERS[d] if d != dim and all(i.shape[d] == t._shape[d] for i in inputs) else "_" for d in range(t.dim()))
    return inputs, f"{','.join([letters] * len(inputs))}->{letters}"


def selected(name, args, kwargs):
    """``index_select``: the index may be sharded on its own."""
    t, index = args[0], argument(args, kwargs, 2, "index")
    letters = letters_of(t, [dim_of(argument(args, kwargs, 1, "dim"), t.dim(), name)])
    own = "z" if index.dim() else ""
    return [t, index], f"first:{letters},{own}->{letters.replace('_', 'z' if own else '_')}"


def index_put(name, args, kwargs):
    """``index_add``, ``index_copy`` and ``index_fill``."""
    t, index, source = args[0], argument(args, kwargs, 2, "index"), argument(args, kwargs, 3, "source")
    letters = letters_of(t, [dim_of(argument(args, kwargs, 1, "dim"), t.dim(), name)])
    inputs = [t, index, source] if isinstance(source, Tensor) and source.dim() else [t, index]
    return inputs, f"{','.join([letters, '_' * index.dim(), letters][: len(inputs)])}->{letters}"


# Products.


def added_product(product, text):
    """``addmm`` and its like: the added tensor is broadcast to the product."""

    def row(name, args, kwargs):
        inputs = list(args[:3])
        output = text.split("->")[1]
        shape = dict(zip("".join(text.split("->")[0].split(",")), (n for t in inputs[1:] for n in t.shape)))
        own = output[len(output) - inputs[0].dim() :]
        own = "".join("_" if n == 1 and shape[c] != 1 else c for c, n in zip(own, inputs[0].shape))
        return inputs, f"+{own},{text}"

    return labelled(row)


def einsum(func, name, args, kwargs):
    equation, operands = args[0], args[1:]
    if not isinstance(equation, str):
        raise NotImplementedError("einsum of DTensors: give the equation as text")
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "..." in left:
        # Letters that the equation does not use, from the last dimension backwards.
        free = [c for c in string.ascii_letters if c not in equation]
        spare = [t.dim() - len(term.replace("...", "")) for term, t in zip(terms, operands)]
        terms = [term.replace("...", "".join(free[:n][::-1])) for term, n in zip(terms, spare)]
        most = "".join(free[: max(n for term, n in zip(left.split(","), spare) if "..." in term)][::-1])
        right = right.replace("...", most)
        if "->" not in equation:
            right = most
            left = left.replace("...", "")
    if "->" not in equation:
        right = (right if "..." in equation else "") + "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
    used = sorted({c for term in (*terms, right) for c in term})
    if len(used) > len(LETTERS):
        raise NotImplementedError(f"einsum of DTensors: at most {len(LETTERS)} letters, got {len(used)}")
    terms, right = (["".join(LETTERS[used.index(c)] for c in term) for term in each] for each in (terms, [right]))
    # A dimension of size 1 is broadcast, and a letter twice in a term is a diagonal: both must be whole.
    sizes = {}
    for term, t in zip(terms, operands):
        for c, n in zip(term, t.shape):
            sizes.setdefault(c, set()).add(n)
    whole = {c for term in terms for c in term if term.count(c) > 1 or len(sizes.get(c, ())) > 1}
    shown = lambda term: "".join("_" if c in whole else c for c in term)
    rule = ("labels", f"{','.join(map(shown, terms))}->{shown(right[0])}", [], False)
    return run(func, name, rule, args, kwargs, list(operands))


def convolution(dims, transposed=False):
    def row(name, args, kwargs):
        x, weight, bias = args[0], argument(args, kwargs, 1, "weight"), argument(args, kwargs, 2, "bias")
        space = "_" * dims
        batch = "N" if x.dim() == dims + 2 else ""
        groups = argument(args, kwargs, 6, "groups", 1)
        c, o = ("C", "O") if groups == 1 else ("_", "_")
        text = f"{batch}{c}{space},{c + o if transposed else o + c}{space}"
        return [x, weight, *([] if bias is None else [bias])], f"{text}{'' if bias is None else ',+' + o}->{batch}{o}{space}"

    return labelled(row)


def distances(name, args, kwargs):
    """``cdist``: points of both may be sharded, their coordinates not."""
    a, b = argument(args, kwargs, 0, "x1"), argument(args, kwargs, 1, "x2")
    lead = max(a.dim(), b.dim()) - 2
    if min(a.dim(), b.dim()) < 2 or lead > len(LETTERS) - 2:
        raise RuntimeError(f"{name}: both should have two dimensions at least, their shapes are {tuple(a.shape)} and {tuple(b.shape)}")
    # Sizes of 1 are broadcast: they are whole.
    sizes = [max(t.shape[d - lead - 2] for t in (a, b) if t.dim() >= lead + 2 - d) for d in range(lead)]
    own = lambda t: "".join(LETTERS[d] if t.shape[d - lead - 2] == sizes[d] else "_" for d in range(lead + 2 - t.dim(), lead))
    return [a, b], f"{own(a)}y_,{own(b)}z_->{LETTERS[:lead]}yz"


# Others.


def compared(func, name, args, kwargs):
    """A Python bool of whole tensors."""
    return func(*(a.full_tensor() if isinstance(a, DTensor) else a for a in args), **kwargs)


def last_of_complex(func, name, args, kwargs):
    t = args[0]
    if name == "view_as_complex":
        return run(func, name, ("reduce", "other", [t.dim() - 1], False), args, kwargs)
    letters = letters_of(t)
    return run(func, name, ("labels", f"sum:{letters}->{letters}_", [], False), args, kwargs)


POINTWISE = """relu gelu silu sigmoid tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt abs absolute pow square sin cos tan asin acos atan sinh cosh asinh acosh atanh erf
    erfc erfinv lgamma digamma floor ceil round trunc sign sgn reciprocal where masked_fill clamp clip clamp_min clamp_max maximum minimum fmax fmin eq ne lt le gt ge
    isclose logical_and logical_or logical_not logical_xor isnan isinf isfinite isposinf isneginf signbit softplus elu selu celu leaky_relu hardtanh hardswish hardsigmoid
    hardshrink softshrink tanhshrink softsign mish logsigmoid relu6 threshold remainder fmod floor_divide addcmul addcdiv lerp atan2 hypot logaddexp logaddexp2 copysign
    logit sinc frac xlogy nan_to_num heaviside deg2rad rad2deg bitwise_and bitwise_or bitwise_not bitwise_xor bool long int short __and__ __or__ __xor__ __invert__
    __pow__ __rpow__ __floordiv__ rsub __rsub__ __rtruediv__ __rfloordiv__"""
CONVERSIONS = "clone contiguous to type float double half bfloat16 cpu cuda xpu alias positive neg negative type_as"
IN_PLACE = """zero_ fill_ add_ sub_ mul_ div_ copy_ addcmul_ addcdiv_ lerp_ sqrt_ clamp_ neg_ masked_fill_ abs_ clamp_max_ clamp_min_ erf_ erfinv_ exp_ floor_ log_ pow_
    reciprocal_ relu_ round_ rsqrt_ sigmoid_ square_ tanh_"""

#: A row for each op's name.
RULES = {}


def _add(names, row):
    RULES.update(dict.fromkeys(names.split(), row))


_add(POINTWISE, fixed("pointwise"))
_add(CONVERSIONS, fixed("pointwise", "sum"))
_add("add sub subtract", additive)
_add("mul multiply __mul__ __rmul__", fixed("pointwise", "product"))
_add("div divide true_divide __truediv__", division)
_add("mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss", loss_of_elements)
_add("dropout", dropout)
_add(IN_PLACE, in_place)
_add("normal_ uniform_ bernoulli_ exponential_ random_ log_normal_ cauchy_ geometric_ trunc_normal_", lambda func, name, args, kwargs: fill_random(func, args, kwargs))
_add("zeros_like ones_like empty_like full_like", like)
_add("rand_like randn_like", random_like)
_add("new_zeros new_ones new_empty new_full", new)

_add("sum", reduction("sum"))
_add("mean", reduction("mean"))
_add("amax", reduction("max"))
_add("amin", reduction("min"))
_add("prod argmax argmin logsumexp all any nansum nanmean count_nonzero aminmax", reduction("other"))
_add("var std var_mean std_mean", reduction("other", 1, 3))
_add("norm", reduction("other", 2, 3))
_add("max", extremum("max"))
_add("min", extremum("min"))
_add("softmax log_softmax softmin", along())
_add("cumsum", along(word="sum:"))
_add("cumprod logcumsumexp cummax cummin argsort glu", along())
_add("flip", lambda func, name, args, kwargs: along(word="sum:", key="dims")(func, name, (args[0], listed(args[1:], kwargs, "dims")), {}))
_add("roll", along(2, "dims", None, "sum:"))
_add("sort", along())
_add("topk", along(2))
_add("kthvalue", along(2, lost=3))
_add("mode", along(lost=2))
_add("median nanmedian", lambda func, name, args, kwargs: (along(lost=2) if len(args) > 1 or "dim" in kwargs else along(default=None, lost=True))(func, name, args, kwargs))
_add("normalize", along(2, "dim", 1))
_add("tril triu", ends(2, "sum:"))
_add("max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d lp_pool1d", ends(1, filled=True))
_add("max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d lp_pool2d", ends(2, filled=True))
_add("max_pool3d avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d", ends(3, filled=True))
_add("pixel_shuffle pixel_unshuffle", ends(3, filled=True))
_add("interpolate", labelled(lambda name, args, kwargs: ([args[0]], "NC{0}->NC{0}".format("_" * (args[0].dim() - 2)))))

_add("view reshape view_as reshape_as flatten ravel unflatten unsqueeze squeeze", view)
_add("transpose permute t swapaxes swapdims movedim moveaxis T mT mH H adjoint", permute)
_add("expand expand_as broadcast_to", expand)
_add("repeat tile", labelled(repeat))
_add("repeat_interleave", labelled(repeat_interleave))
_add("diagonal", labelled(diagonal))
_add("unfold", labelled(unfold))
_add("pad", labelled(pad))
_add("cat concat concatenate", cat)
_add("stack", stack)
_add("split chunk tensor_split split_with_sizes", along(2, "dim", 0, "sum:"))
_add("unbind", along(1, "dim", 0, "sum:", lost=True))
_add("select", along(1, "dim", 0, "sum:", lost=True))
_add("narrow", along(1, "dim", 0, "sum:"))
_add("view_as_complex view_as_real", last_of_complex)
_add("one_hot", labelled(one_hot))

_add("__getitem__", get_item)
_add("__setitem__", set_item)
_add("gather take_along_dim", labelled(picked))
_add("scatter scatter_add", labelled(put))
_add("index_select", labelled(selected))
_add("index_add index_copy index_fill", labelled(index_put))
_add("masked_select nonzero unique unique_consecutive bincount histc", refused("the size of the result, or its order, depends on all values; use full_tensor()"))

_add("matmul mm bmm __matmul__ mv dot", fixed("matmul"))
_add("addmm", added_product("matmul", "mk,kn->mn"))
_add("addmv", added_product("matmul", "mk,k->m"))
_add("addbmm", added_product("matmul", "bmk,bkn->mn"))
_add("addr", added_product("matmul", "m,n->mn"))
_add("baddbmm", added_product("matmul", "bmk,bkn->bmn"))
_add("outer ger", labelled(lambda name, args, kwargs: (list(args[:2]), "m,n->mn")))
_add("einsum", einsum)
_add("linear", linear)
_add("cdist", labelled(distances))
for _dims in (1, 2, 3):
    _add(f"conv{_dims}d", convolution(_dims))
    _add(f"conv_transpose{_dims}d", convolution(_dims, transposed=True))
del _dims
_add("scaled_dot_product_attention", attention)

_add("layer_norm rms_norm", norm)
_add("group_norm", labelled(group_norm))
_add("batch_norm", batch_norm)
_add("instance_norm", instance_norm)
_add("embedding", embedding)
_add("cross_entropy nll_loss", loss_of_classes)
_add("allclose equal", compared)
_add("cosine_similarity pdist svd qr eigh eigvalsh svdvals cholesky inverse pinverse inv solve solve_triangular det slogdet logdet matrix_exp matrix_power", gathered)
